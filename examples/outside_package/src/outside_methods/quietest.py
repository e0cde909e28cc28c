"""Quietest: a recycler, which chooses units; what is done to them is the same for all recyclers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from torch import Tensor

from rekindle.methods import Card, MethodContext, MethodState, recycler_method

CARD = Card(
    title="Quietest",
    source="an example after ReDo (Sokar et al. 2023), which recycles by a threshold",
    what="Recycles the unit of each layer with the smallest mean |activation|, every so many steps.",
    when="Never; it shows what a recycler looks like.",
    cost="A sum over activations in the steps that recycle.",
    deviations=("One unit a layer, however loud it is.",),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
>>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
>>> keeper = rk.Keeper(net, optimizer, "quietest:period=1", example=torch.zeros(1, 4))
>>> net(torch.randn(8, 4)).sum().backward(); optimizer.step(); _ = keeper.step()
>>> keeper.recycled["0"]
1
""",
    needs=("example",),
)


@recycler_method(CARD, identity={"period": 10**9}, observes=("magnitude",))
class Quietest:
    """Settings of quietest.

    Args:
        period: Steps between two recyclings.
    """

    period: Annotated[int, Field(ge=1)] = 1000

    def init(self, context: MethodContext) -> MethodState:
        """Return what the method keeps for a model."""
        return _State(self, context)


class _State(MethodState):
    def __init__(self, settings: Quietest, context: MethodContext) -> None:
        self._period, self._watch = settings.period, context.watch

    def watches(self, step: int) -> bool:
        return step % self._period == 0

    def choose(self, step: int) -> Mapping[str, Tensor]:
        if not self.watches(step):
            return {}
        return {name: seen.argmin().reshape(1) for name, seen in self._watch.seen("magnitude").items()}
