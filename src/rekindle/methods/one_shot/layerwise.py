"""Layerwise reinitialization (LW): keep the blocks below, standardize what they give, draw everything above afresh."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rekindle.edits.compute import compute
from rekindle.methods import (
    Card,
    Edit,
    Edits,
    Evidence,
    PlanError,
    Skip,
    Standardize,
    Surgery,
    UnitGraph,
    Weight,
    one_shot_method,
    tensors_of,
)
from rekindle.methods.one_shot._blocks import find_blocks
from rekindle.methods.one_shot._placement import find_placement
from rekindle.observe.outputs import upstream_of

CARD = Card(
    title="Layerwise reinitialization (LW)",
    source="The impact of reinitialization on generalization in convolutional neural networks, Algorithm 1, Appendix E",
    what="One round at block k: weights of blocks 1..k go back to their initial norm, a fixed normalization "
    "(x - mu) / sigma measured on one batch is put after block k, behind its activation, or updated, and everything "
    "above is drawn afresh. "
    "Train until convergence after each round; rounds go k = 1..K, N times each.",
    when="When a network overfits a small data set and there is time for K*N trainings: it places emphasis on what the "
    "lower layers learn. Not for a quick repair: each round throws away all that is above block k.",
    cost="Three forward passes and one backward pass on one batch, one pass over the parameters; then a training.",
    deviations=(
        "Below block k is what the outputs of blocks 1..k depend on, asked of autograd; so residual and parallel "
        "branches, embeddings and stems belong to the block that uses them first.",
        "Blocks that are not named are found: the outermost modules with two or more weights (residual, attention, "
        "separable blocks), else the convolutions, else the hidden layers; the record lists them. In an nn.Sequential "
        "a layer's block goes on to the next layer with a weight.",
        "The normalization stands after the block's activation (Appendix C: a block is convolution, norm and ReLU). An "
        "activation that is a function, or one module used at several places, has nothing behind it: then it stands "
        "before every module that reads the activation, with the same two numbers, which are measured there. Pooling, "
        "reshaping and dropout between the two come before it. Where something else uses the activation (an addition, "
        "a product, a layer that reads other things too) the round does not normalize, and the record says so.",
        "Logits are not normalized unless logits=True: a block that ends with the last layer is only rescaled. The "
        "paper does not speak of it. On its synthetic data (Table 1, signal 1.0: 72.3 published) LW gives 73.4, the "
        "mean of 20 seeds; with the normalization before the ReLU and on the logits too it gave 79.6.",
        "The paper rescales to the norm that was measured at the start. Without reference= it is taken from the "
        "initializer: sqrt(number of elements) times its standard deviation. Biases and normalization layers are not "
        "rescaled; under weight_norm it is the gain.",
        "mu and sigma are measured with dropout off and BatchNorm on the batch's own statistics, because the running "
        "ones belong to the weights before rescaling. A constant output has sigma 0: it is divided by 1.",
        "Fresh values come from each layer's own initializer and differ from round to round, also with reference=, "
        "which gives the norms; fresh='reference' takes them from there. BatchNorm above block k is set back too, "
        "statistics included.",
        "The normalization is a hook with two buffers on the block's module (rekindle_mean, rekindle_std) or on each "
        "reader (rekindle_input_mean, rekindle_input_std): parameter names stay, and state dict, copy and pickle "
        "carry it. To load such a state dict into a freshly built model use rk.restore_(model, state_dict).",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> from rekindle.methods.one_shot.layerwise import layerwise_rounds
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4), torch.nn.ReLU(),
...                           torch.nn.Linear(4, 2))
>>> x = torch.randn(64, 8)
>>> for settings in layerwise_rounds(blocks=("1", "3"), repeats=2):
...     record = rk.apply_(settings, net, example=x)  # then train
>>> out = net[:2](x)
>>> abs(float(out.mean())) < 1e-5, round(float(out.std(correction=0)), 4)
(True, 1.0)
""",
    needs=("example", "data"),
    structural=True,
    aliases=("lw",),
)


@one_shot_method(CARD, identity={"rescale": False, "normalize": False, "reinitialize": False})
class Layerwise:
    """Settings of one round of layerwise reinitialization.

    Args:
        block: The round's block k, counted from 1.
        blocks: Paths of the blocks in order, each the block's last module with parameters, or its activation where that
            is a module of its own; an activation that follows belongs to the block. None finds them.
        repeat: The round's number n at this block, counted from 1; another number gives other draws.
        rescale: Bring weights below back to their initial norm.
        normalize: Put the fixed normalization after block k: after its activation.
        reinitialize: Draw everything above afresh.
        freeze: Stop training what is below, for the ablation of Appendix E.
        logits: Normalize also after a block that ends with the model's last layer.
        fresh: Where fresh values come from: each layer's own initializer, or the reference= (for a model that
            initializes itself in another way: the function that builds it, with another seed= in each round).
    """

    key: ClassVar[str]

    block: Annotated[int, Field(ge=1)] = 1
    blocks: tuple[str, ...] | None = None
    repeat: Annotated[int, Field(ge=1)] = 1
    rescale: bool = True
    normalize: bool = True
    reinitialize: bool = True
    freeze: bool = False
    logits: bool = False
    fresh: Literal["init", "reference"] = "init"

    @property
    def changes_structure(self) -> bool:
        """Whether this round puts a module in, or takes parameters out of training."""
        return self.normalize or self.freeze

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return the edits below and above block k, and the normalization after it."""
        if not (self.rescale or self.normalize or self.reinitialize or self.freeze):
            return Edits()
        model, batch = evidence.live(self.key)
        blocks = self.blocks if self.blocks is not None else find_blocks(graph, model)
        if not blocks:
            return Edits(skips=(Skip("model", "no module inside it applies a weight that could be a block"),))
        self._check(blocks)
        below, passed = upstream_of(model, blocks[: self.block], batch)
        planned = self._rescaled(graph, evidence, below) if self.rescale else Edits()
        replaced = {change.tensor: change.new for change in compute(planned.edits, tensors_of(model))}
        planned += self._grafts(graph, model, blocks, batch, replaced, below)
        if self.reinitialize:
            planned += self._redrawn(graph, evidence, seed, below, passed)
        return planned

    def _check(self, blocks: Sequence[str]) -> None:
        if self.block > len(blocks):
            raise PlanError(
                expected=f"block: 1 to {len(blocks)} ({_listed(blocks)})",
                got=f"block={self.block}",
                fix="name other blocks=, or stop after the last one",
            )

    def _rescaled(self, graph: UnitGraph, evidence: Evidence, below: frozenset[str]) -> Edits:
        edits, skips = [], []
        for tensor in dict.fromkeys(weight.tensor for weight in graph.weights if weight.tensor in below):
            weight = graph.weights_of(tensor)[0]
            stored = weight.gain[0] if weight.gain else tensor
            norm = _initial_norm(graph, evidence, weight, stored)
            if weight.computed:
                skips.append(Skip(tensor, "the layer computes its weight from it; its norm cannot be set"))
            elif norm is None:
                skips.append(Skip(tensor, "its initial norm is not known; pass reference="))
            else:
                edits.append(Edit(stored, _to_norm(norm), f"{self.key}: to its initial norm"))
        return Edits(tuple(edits), tuple(skips))

    def _grafts(
        self,
        graph: UnitGraph,
        model: nn.Module,
        blocks: Sequence[str],
        batch: Any,
        replaced: dict[str, Tensor],
        below: frozenset[str],
    ) -> Edits:
        path = blocks[self.block - 1]
        planned = Edits(notices=(f"blocks: {_listed(blocks)}; this was a round of block {self.block}",))
        freezes = tuple(name for name in graph.parameters if name in below) if self.freeze else ()
        if freezes:
            planned += Edits(surgery=(Surgery(path, None, freezes, self.key),))
        return planned + self._normalized(model, path, batch, replaced) if self.normalize else planned

    def _normalized(self, model: nn.Module, path: str, batch: Any, replaced: dict[str, Tensor]) -> Edits:
        place = find_placement(model, path, batch, replaced, logits=self.logits)
        if isinstance(place, Skip):
            return Edits(skips=(place,))
        mean, std = mean_and_std(place.values)
        if not math.isfinite(mean + std):
            return Edits(skips=(Skip(path, "its outputs on this batch are not finite: not normalized"),))
        notices = [f"the output of {path} is constant; its normalization only shifts"] if not std else []
        notices += [f"{path} is called {place.calls} times; each is normalized"] if place.calls > 1 else []
        notices.append("load a state dict with this normalization into a new model with rk.restore_")
        put = Standardize(mean, std or 1.0, place.side)
        surgery = tuple(Surgery(module, put, (), self.key) for module in place.modules)
        return Edits(notices=tuple(notices), surgery=surgery)

    def _redrawn(
        self, graph: UnitGraph, evidence: Evidence, seed: int, below: frozenset[str], passed: frozenset[str]
    ) -> Edits:
        above = [name for name in graph.parameters if name not in below]
        above += [name for name in graph.statistics() if name.rpartition(".")[0] not in passed]
        edits, skips = [], []
        for name in above:
            if evidence.reference is None and self.fresh == "init" and not graph.has_initializer(name):
                skips.append(
                    Skip(name, "its initializer is not known; pass reference= (a function that builds the model)")
                )
            else:
                edits.append(Edit(name, self._fresh(graph, evidence, name, seed), f"{self.key}: above, drawn afresh"))
        return Edits(tuple(edits), tuple(skips))

    def _fresh(self, graph: UnitGraph, evidence: Evidence, name: str, seed: int) -> Callable[[Tensor], Tensor]:
        shape = graph.parameters.get(name)
        stored = shape is not None and (self.fresh == "reference" or not graph.has_initializer(name))
        start = evidence.initial(name, shape, self.key) if stored and shape is not None else None
        reason = f"{self.key} {self.block} {self.repeat}"

        def op(old: Tensor) -> Tensor:
            drawn = graph.fresh(name, tuple(old.shape), seed, reason) if start is None else start
            assert drawn is not None
            return drawn.to(old)

        return op


def _listed(blocks: Sequence[str]) -> str:
    return ", ".join(f"{number} {path}" for number, path in enumerate(blocks, 1))


def _initial_norm(graph: UnitGraph, evidence: Evidence, weight: Weight, stored: str) -> float | None:
    """Return |W| at the start: of the reference, or by the initializer; a gain has the norm of its weight."""
    if evidence.reference is not None:
        return float(evidence.initial(stored, graph.parameters[stored], "layerwise").double().norm())
    initializer = graph.initializers.get(weight.tensor)
    std = getattr(initializer, "std", None)
    if std is not None:
        return float(std * torch.Size(weight.shape).numel() ** 0.5)
    drawn = graph.fresh(weight.tensor, weight.shape, 0, "layerwise norm")
    return None if drawn is None else float(drawn.double().norm())


def _to_norm(norm: float) -> Callable[[Tensor], Tensor]:
    """W <- (s / |W|) W, Algorithm 1 line 7; a weight of zeros has no direction and stays."""

    def op(old: Tensor) -> Tensor:
        now = float(old.double().norm())
        return old * (norm / now) if now > 0 else old.clone()

    return op


def mean_and_std(outputs: Sequence[Tensor]) -> tuple[float, float]:
    """Return mean and standard deviation over all elements of all outputs, Algorithm 1 line 12.

    Example:
        >>> mean_and_std([torch.tensor([1.0, 3.0])])
        (2.0, 1.0)
    """
    values = torch.cat([output.detach().double().reshape(-1) for output in outputs])
    return float(values.mean()), float(values.std(correction=0))


def layerwise_rounds(blocks: int | tuple[str, ...], repeats: int = 1, **given: Any) -> Iterator[Layerwise]:
    """Yield the settings of all rounds in order: blocks 1..K, each `repeats` times; train after each.

    Args:
        blocks: Paths of the blocks; or their number, where they are found (the record of the first round lists them).
        repeats: Rounds for each block, N in the paper.
        **given: Other settings, see `Layerwise`.

    Example:
        >>> [(one.block, one.repeat) for one in layerwise_rounds(2, repeats=2)]
        [(1, 1), (1, 2), (2, 1), (2, 2)]
    """
    count, paths = (blocks, None) if isinstance(blocks, int) else (len(blocks), blocks)
    for block in range(1, count + 1):
        for repeat in range(1, repeats + 1):
            yield Layerwise(block=block, repeat=repeat, blocks=paths, **given)
