"""Dirac reset: add identity mappings to all weights, so that frozen ones can be trained again."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import AfterValidator, Field

from rekindle.methods import Card, Edit, Edits, Evidence, UnitGraph, one_shot_method
from rekindle.methods.one_shot._effective import NOT_TRACED, dirac_places, edits_of, plus_dirac, sorted_tensors

OneDimensional = Literal["add", "set", "keep"]


class Preset(NamedTuple):
    """What one row of the paper's tables uses."""

    strength: float
    one_dimensional: OneDimensional


DEFAULT = Preset(0.2, "add")
PRESETS = {
    # Table 6
    "cifar10_blurred_to_sharp_resnet18": Preset(0.2, "add"),
    "cifar10_blurred_to_sharp_all_cnn": Preset(0.1, "add"),
    "cifar10_to_random_shift": Preset(0.4, "set"),
    "cifar10_to_cifar100": Preset(0.5, "add"),
    "cifar10_to_fashion_mnist": Preset(0.2, "add"),
    "mnist_to_fashion_mnist": Preset(0.4, "set"),
    "svhn_to_cifar10": Preset(0.4, "set"),
    # Table 7
    "imagenet_to_fashion_mnist": Preset(0.05, "set"),
    "imagenet_to_kmnist": Preset(0.01, "add"),
    "imagenet_to_emnist_letters": Preset(0.05, "add"),
    "imagenet_to_cifar100": Preset(0.05, "add"),
    # Table 8
    "imagenet_to_resisc45": Preset(0.01, "add"),
    "imagenet_to_patch_camelyon": Preset(0.01, "add"),
}


def _known(name: str) -> str:
    if name not in PRESETS:
        raise ValueError(f"presets: {', '.join(PRESETS)}")
    return name


PresetName = Annotated[str, AfterValidator(_known)]


CARD = Card(
    title="Dirac reset of frozen weights",
    source="The paper on mutually frozen weights, appendix 6.5 and Tables 6-8",
    what="Adds an identity mapping to every weight. W <- W + strength * Dirac, the identity for a linear weight and "
    "torch's dirac_ for a convolution (ones on the diagonal at the kernel's center). One-dimensional tensors (biases, "
    "normalization): add the strength, set to 1.0, or keep.",
    when="When weights are frozen: rows and columns at zero hold each other there, and only a push from outside "
    "helps. Most useful with many samples of a task that needs other features (6.4). Not for few samples.",
    cost="One pass over the parameters.",
    deviations=(
        "Without preset and settings the strength is 0.2, added to one-dimensional tensors too: the first row of "
        "Table 6. The presets hold the strengths only; learning rates belong to the protocol.",
        "All one-dimensional parameters are treated, as the tables say ('other one-dimensional tensors'): also "
        "biases, and set means 1.0 for them too. one_dimensional='keep' leaves all of them alone.",
        "Linear weights, to which torch's dirac_ does not apply, get the identity as far as there are rows and "
        "columns. Fused projections get one identity for each of queries, keys and values, GPT-2's Conv1D along its "
        "own dimensions, grouped convolutions one for each group.",
        "Embeddings and other parameters of several dimensions that are no weights (a class token, positions) are left "
        "alone; the paper has none.",
        "Under weight_norm the Dirac is added to the effective weight, through gain and direction.",
        "Optimizer moments are cleared exactly where something was added or set.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Conv2d(2, 2, 3)
>>> _ = net.weight.data.zero_(), net.bias.data.zero_()
>>> record = rk.dirac_reset_(net, preset="cifar10_to_random_shift")
>>> torch.equal(net.weight, 0.4 * torch.nn.init.dirac_(torch.empty(2, 2, 3, 3))), net.bias.tolist()
(True, [1.0, 1.0])
""",
)


@one_shot_method(CARD, identity={"strength": 0.0})
class DiracReset:
    """Settings of the Dirac reset.

    Args:
        preset: A task change of the paper's Tables 6-8, as in `cifar10_to_cifar100`; the other settings override it.
        strength: What the Dirac is multiplied by; None takes the preset's, 0.2 without one.
        one_dimensional: Add the strength to one-dimensional tensors, set them to 1.0, or keep them; None takes the
            preset's, add without one.
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]

    preset: PresetName | None = None
    strength: Annotated[float, Field(ge=0)] | None = None
    one_dimensional: OneDimensional | None = None
    skip: tuple[str, ...] = ()

    def resolved(self) -> Preset:
        """Return strength and treatment of one-dimensional tensors, from the settings and the preset."""
        preset = DEFAULT if self.preset is None else PRESETS[self.preset]
        return Preset(
            preset.strength if self.strength is None else self.strength,
            preset.one_dimensional if self.one_dimensional is None else self.one_dimensional,
        )

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each weight and each one-dimensional tensor."""
        strength, how = self.resolved()
        weights, vectors, skips = sorted_tensors(graph, self.skip)
        edits: list[Edit] = []
        for name in weights if strength else ():
            change = partial(plus_dirac, graph, name, strength=strength)
            edits += edits_of(graph, name, change, self.key, dirac_places(graph, name))
        if how == "set":
            edits += [Edit(name, torch.ones_like, self.key) for name in vectors]
        elif how == "add" and strength:
            edits += [Edit(name, lambda old: old + strength, self.key) for name in vectors]
        return Edits(tuple(edits), skips, () if graph.traced else (NOT_TRACED,))
