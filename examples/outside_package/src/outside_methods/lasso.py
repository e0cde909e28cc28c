"""Lasso: a per-step method with a term for the loss."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import Card, MethodContext, MethodState, per_step_method

CARD = Card(
    title="Lasso",
    source="Tibshirani 1996, Regression shrinkage and selection via the lasso",
    what="Adds the size of the parameters to the loss. strength |theta|_1.",
    when="To show a penalty; `l2` and `l2_init` are the ones in use.",
    cost="One pass over the parameters.",
    deviations=("Every trained parameter counts, biases too.",),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(2, 1, bias=False)
>>> _ = net.load_state_dict({"weight": torch.tensor([[3.0, -4.0]])})
>>> round(rk.Keeper(net, methods="lasso:strength=0.1").penalty().item(), 4)
0.7
""",
)


@per_step_method(CARD, identity={"strength": 0.0})
class Lasso:
    """Settings of the lasso.

    Args:
        strength: Its weight in the loss.
    """

    strength: Annotated[float, Field(ge=0)] = 1e-3

    def init(self, context: MethodContext) -> MethodState:
        """Return what the method keeps for a model."""
        return _State(self, context) if self.strength else MethodState()


class _State(MethodState):
    def __init__(self, settings: Lasso, context: MethodContext) -> None:
        self._strength, self._tensors = settings.strength, list(context.trained().values())

    def penalty(self) -> Tensor | None:
        if not self._tensors:
            return None  # everything is frozen
        return self._strength * torch.stack([tensor.abs().sum() for tensor in self._tensors]).sum()
