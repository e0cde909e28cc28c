"""ReDo: recycle units that are dormant, every so many steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from torch import Tensor

from rekindle.methods import ELEMENTS_BEGIN_AGAIN, Card, MethodContext, MethodState, recycler_method, relative
from rekindle.methods.recyclers._units import FLATTENED, FRESH_BIASES, IN_PLACE, RECYCLED, ZEROS_WIN, not_skipped

CARD = Card(
    title="ReDo, recycling dormant neurons",
    source="Sokar et al. 2023, The Dormant Neuron Phenomenon in Deep Reinforcement Learning; FIRE: D",
    what="Every `period` steps, units whose score is at most `threshold` are recycled. "
    "The score of a unit is its mean |activation| over the mean of its layer: s_i = E|h_i| / mean_k E|h_k|. Recycled "
    f"units have {RECYCLED}.",
    when="When many units have gone dormant, as in reinforcement learning with high replay ratios. Not when the layer "
    "is sparse by design.",
    cost="Activations are looked at only in the step before a recycling: next to nothing otherwise. Measured in "
    "benchmarks/.",
    deviations=(
        "Activations of the training batch of that step are scored (published code: test images), after norm and "
        "nonlinearity, where the next layer reads them.",
        "Every group of units that the graph knows takes part, the last hidden layer (which published code never "
        "recycles) and residual streams included; a unit of a stream is recycled in all layers that write and read it.",
        "A residual stream is scored by the mean over all layers that read it: what is silent for one may speak to the "
        "next.",
        "A layer that is silent as a whole has score 0 everywhere and is recycled as a whole; its outgoing weights, "
        "all zero then, move in the next step.",
        f"{FRESH_BIASES}.",
        IN_PLACE,
        FLATTENED,
        ZEROS_WIN,
        ELEMENTS_BEGIN_AGAIN,
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
>>> optimizer = torch.optim.Adam(net.parameters())
>>> _ = net[0].bias.data[2].fill_(-100.0)  # a dead unit
>>> keeper = rk.Keeper(net, optimizer, "redo:period=1,threshold=0.01", example=torch.zeros(1, 8))
>>> net(torch.randn(32, 8)).square().mean().backward()
>>> optimizer.step(); _ = keeper.step()
>>> bool(net[0].bias[2] > -1), net[2].weight[:, 2].tolist(), keeper.recycled["0"] >= 1
(True, [0.0, 0.0, 0.0, 0.0], True)
""",
    needs=("example",),
)


@recycler_method(CARD, identity={"skip": ("*",)}, observes=("magnitude",))
class Redo:
    """Settings of ReDo.

    Args:
        threshold: Largest score of a dormant unit (tau).
        period: Steps between two recyclings.
        skip: Patterns of group names to leave alone.
    """

    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.025
    period: Annotated[int, Field(ge=1)] = 1000
    skip: tuple[str, ...] = ()

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of ReDo."""
        return _State(self, context)


class _State(MethodState):
    def __init__(self, settings: Redo, context: MethodContext) -> None:
        self.settings, self.watch = settings, context.watch

    def watches(self, step: int) -> bool:
        return step % self.settings.period == 0

    def choose(self, step: int) -> Mapping[str, Tensor]:
        if not self.watches(step):
            return {}
        found = not_skipped(self.watch.seen("magnitude"), self.settings.skip)
        return {name: dormant(values, self.settings.threshold) for name, values in found.items()}


def dormant(magnitude: Tensor, threshold: float) -> Tensor:
    """Return the numbers of the units with mean |activation| at most `threshold` times the layer's mean.

    Example:
        >>> dormant(Tensor([1.0, 0.0, 2.0, 0.02]), 0.1).tolist()
        [1, 3]
    """
    return (relative(magnitude) <= threshold).nonzero().reshape(-1)
