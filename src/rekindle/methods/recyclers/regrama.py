"""ReGraMa: recycle units that learn next to nothing, by the magnitude of their gradients."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import (
    ELEMENTS_BEGIN_AGAIN,
    Card,
    Group,
    MethodContext,
    MethodState,
    NoEffectWarning,
    no_gradients,
    recyclable,
    recycler_method,
)
from rekindle.methods.recyclers._units import FRESH_BIASES, RECYCLED, ZEROS_WIN, not_skipped

CARD = Card(
    title="ReGraMa, recycling by gradient magnitude",
    source="Liu et al. 2025, Measure gradients, not activations!, arXiv 2505.24061",
    what="Every `period` steps, units whose gradient is at most `threshold` of their layer's are recycled. "
    "The score of a unit is the magnitude of its gradient over the mean of its layer: G_i = E|g_i| / mean_k E|g_k|. "
    f"Recycled units have {RECYCLED}.",
    when="Where a small activation does not mean a useless unit: residual networks, norms, GELU. Not with a period of "
    "a few steps: a recycled unit has no gradient until its outgoing weights have moved.",
    cost="Nothing but in the steps that recycle: one pass over the gradients. Measured in benchmarks/.",
    deviations=(
        "The gradient of a unit is the mean |gradient| of its incoming weights after the backward pass of the step, "
        "which is there already, and not that of its activation sample by sample.",
        "A unit of a residual stream has the mean over the weights of all layers that write it.",
        "A layer whose gradient is zero as a whole is left alone: it is blocked by a layer above, and 0/0 is no "
        "score. `redo` finds layers that are dead themselves.",
        f"{FRESH_BIASES}.",
        ZEROS_WIN,
        ELEMENTS_BEGIN_AGAIN,
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
>>> optimizer = torch.optim.Adam(net.parameters())
>>> _ = net[0].bias.data[2].fill_(-100.0)  # a dead unit
>>> keeper = rk.Keeper(net, optimizer, "regrama:period=2", example=torch.zeros(1, 8))
>>> for _ in range(2):
...     optimizer.zero_grad()
...     net(torch.randn(32, 8)).square().mean().backward()
...     optimizer.step(); _ = keeper.step()
>>> keeper.recycled["0"], bool(net[0].bias[2] > -1)
(1, True)
""",
    needs=("example",),
)


@recycler_method(CARD, identity={"skip": ("*",)})
class Regrama:
    """Settings of ReGraMa.

    Args:
        threshold: Largest score of a unit that has stopped learning (tau).
        period: Steps between two recyclings.
        skip: Patterns of group names to leave alone.
    """

    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.01
    period: Annotated[int, Field(ge=2)] = 1000
    skip: tuple[str, ...] = ()

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of ReGraMa."""
        return _State(self, context)


class _State(MethodState):
    def __init__(self, settings: Regrama, context: MethodContext) -> None:
        self.settings, self.tensors = settings, context.tensors
        groups, _ = recyclable(context.graph, context.still())
        self.groups = list(not_skipped({group.name: group for group in groups}, settings.skip).values())

    def choose(self, step: int) -> Mapping[str, Tensor]:
        if step % self.settings.period or not self.groups:
            return {}
        found = {group.name: magnitude(group, self.tensors) for group in self.groups}
        known = {name: values for name, values in found.items() if values is not None}
        if not known:
            raise no_gradients()
        if not any(bool(values.any()) for values in known.values()):
            told = "regrama: the gradients of all incoming weights are zero, so that no unit was recycled"
            warnings.warn(told, NoEffectWarning, stacklevel=4)
            return {}
        return {name: stuck(values, self.settings.threshold) for name, values in known.items()}


@torch.no_grad()
def magnitude(group: Group, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return the mean |gradient| of each unit's incoming weights, None if none of them has a gradient."""
    total, count = None, 0
    for slot in group.incoming:
        gradient = tensors[slot.tensor].grad
        if gradient is None or slot.kind != "weight":
            continue
        part = slot.where.read(gradient.to_dense() if gradient.is_sparse else gradient)  # [units, repeat, rest]
        sums = part.float().abs().sum((1, 2))
        total = sums if total is None else total + sums
        count += part[0].numel()
    return None if total is None else total / count


def stuck(gradients: Tensor, threshold: float) -> Tensor:
    """Return the numbers of the units with a gradient of at most `threshold` times the mean; none if all are zero.

    Example:
        >>> stuck(torch.tensor([1.0, 0.0, 2.0, 0.002]), 0.01).tolist(), stuck(torch.zeros(3), 0.01).tolist()
        ([1, 3], [])
    """
    mean = gradients.mean()
    return ((gradients <= threshold * mean) & (mean > 0)).nonzero().reshape(-1)
