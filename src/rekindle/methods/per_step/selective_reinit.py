"""Selective reinitialization: single weights of little use are drawn afresh, not whole units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import (
    ELEMENTS_BEGIN_AGAIN,
    Card,
    Edit,
    Edits,
    MethodContext,
    MethodState,
    UnitGraph,
    matches,
    no_gradients,
    per_step_method,
    smallest,
)

CARD = Card(
    title="Selective weight reinitialization",
    source="Hernandez-Garcia et al. 2025, Reinitializing weights vs units for maintaining plasticity, arXiv 2508.00212",
    what="Every `period` steps, the share `rate` of each weight tensor with the lowest utility is drawn afresh. "
    "The utility of a weight is |w * gradient|, to first order what the loss would change by without it. Fresh values "
    "come from the layer's own initializer; moments are cleared exactly there.",
    when="In small networks and in those with layer normalization, where there are too few units to recycle whole "
    "ones, or where the paper found units not to help.",
    cost="Nothing but in the steps that draw: one pass over weights and gradients and a selection per tensor.",
    deviations=(
        "The gradient is the one of the step that was just taken, and the weight the one after it. There is no moving "
        "average of utilities, which is optional in the paper.",
        "The share is taken per tensor; what is less than one weight adds up to the next time.",
        "Weights of two and more dimensions only: biases and norms stay. Of a weight under weight_norm the direction "
        "is treated.",
        "Of equal utilities the first are taken: a dead unit's weights, all zero, go before any other.",
        ELEMENTS_BEGIN_AGAIN,
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
>>> optimizer = torch.optim.Adam(net.parameters())
>>> keeper = rk.Keeper(net, optimizer, "selective_reinit:rate=0.25,period=1")
>>> net(torch.randn(32, 8)).square().mean().backward()
>>> optimizer.step()
>>> before = net[0].weight.detach().clone()
>>> _ = keeper.step()
>>> int((net[0].weight != before).sum())  # a quarter of 48
12
""",
)


@per_step_method(CARD, identity={"rate": 0.0})
class SelectiveReinit:
    """Settings of selective reinitialization.

    Args:
        rate: Share of the weights of each tensor that is drawn afresh each time.
        period: Steps between two times.
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]

    rate: Annotated[float, Field(ge=0, le=1)] = 1e-3
    period: Annotated[int, Field(ge=1)] = 100
    skip: tuple[str, ...] = ()

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of selective reinitialization."""
        return _State(self, context)


class _State(MethodState):
    def __init__(self, settings: SelectiveReinit, context: MethodContext) -> None:
        self.settings, self.graph, self.seed = settings, context.graph, context.seed
        trained = context.trained()
        names = dict.fromkeys(weight.tensor for weight in context.graph.weights)
        self.weights = {
            name: trained[name]
            for name in names
            if name in trained and context.graph.has_initializer(name) and not matches(name, settings.skip)
        }
        self.due = dict.fromkeys(self.weights, 0.0)

    def edits(self, step: int) -> Edits | None:
        if step % self.settings.period or not self.settings.rate or not self.weights:
            return None
        if all(weight.grad is None for weight in self.weights.values()):
            raise no_gradients()
        return Edits(tuple(self._edits(f"{self.settings.key} at step {step}")))

    @torch.no_grad()
    def _edits(self, reason: str) -> Iterator[Edit]:
        for name, weight in self.weights.items():
            if weight.grad is None:
                continue
            self.due[name] += self.settings.rate * weight.numel()
            count = int(self.due[name])
            self.due[name] -= count
            if count:
                gradient = weight.grad.to_dense() if weight.grad.is_sparse else weight.grad
                useless = smallest(weight.detach().float() * gradient.float(), count)
                draw = partial(_drawn, useless=useless, graph=self.graph, name=name, seed=self.seed, reason=reason)
                yield Edit(name, draw, f"{reason}: fresh", touched=partial(_mask, useless=useless))

    def state_dict(self) -> dict[str, Any]:
        return {"due": dict(self.due)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.due = dict(state["due"])


def _drawn(old: Tensor, useless: Tensor, graph: UnitGraph, name: str, seed: int, reason: str) -> Tensor:
    fresh = graph.fresh(name, tuple(old.shape), seed, reason)
    assert fresh is not None  # only tensors with a initializer are treated
    return torch.where(useless, fresh.to(old), old)


def _mask(old: Tensor, useless: Tensor) -> Tensor:
    return useless
