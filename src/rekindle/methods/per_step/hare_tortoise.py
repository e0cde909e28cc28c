"""Hare and Tortoise: a slow average of the weights, to which the model is set back every so many steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import Card, MethodContext, MethodState, Replace, Update, per_step_method, widened
from rekindle.methods.per_step._saved import fitting

CARD = Card(
    title="Hare and Tortoise networks",
    source="Lee et al. 2024, Slow and Steady Wins the Race: Maintaining Plasticity with Hare and Tortoise Networks "
    "(arXiv 2406.02596)",
    what="Keeps a slow average of the weights and sets the model back to it every `period` steps. The model is the "
    "hare; after each step tortoise <- momentum tortoise + (1 - momentum) hare, and every `period` steps "
    "hare <- tortoise.",
    when="For warm starts and streams of data, where the average generalizes better than the last weights. Use the "
    "tortoise for predictions: keeper.state('hare_tortoise').tortoise.",
    cost="A copy of the parameters, and one pass over them after each step.",
    deviations=(
        "The period counts steps. Published code counts epochs and sets back after the first and then every tenth; "
        "2000 steps are about ten epochs of 50,000 images in batches of 256.",
        "Hare and tortoise never share memory. In published code they do after each set-back, so that the tortoise "
        "takes the whole of the hare's next step.",
        "Running statistics of normalization layers are averaged and set back with the weights, as published; their "
        "counters of batches and other buffers stay the hare's own.",
        "The optimizer's moments are kept at a set-back, as in published code; clear_moments=true clears them.",
        "The tortoise of a bfloat16 or float16 model is kept in float32, where such small steps are not lost.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(1, 1, bias=False)
>>> _ = net.weight.data.fill_(0.0)
>>> keeper = rk.Keeper(net, methods="hare_tortoise:momentum=0.5,period=2")
>>> _ = net.weight.data.fill_(1.0); _ = keeper.step(); net.weight.item()
1.0
>>> keeper.state("hare_tortoise").tortoise["weight"].item()
0.5
>>> _ = keeper.step(); net.weight.item()
0.75
""",
)


@per_step_method(CARD, identity={"momentum": 0.0})
class HareTortoise:
    """Settings of Hare and Tortoise.

    Args:
        momentum: Share of itself that the tortoise keeps at each step; 0 makes it follow the hare, which changes
            nothing.
        period: Steps between two set-backs of the hare.
        clear_moments: Whether the optimizer's moments are cleared at a set-back.
    """

    scan_is_enough: ClassVar[bool] = True

    momentum: Annotated[float, Field(ge=0, le=1)] = 0.999
    period: Annotated[int, Field(ge=1)] = 2000
    clear_moments: bool = False

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of Hare and Tortoise."""
        statistics = [name for name in context.graph.statistics() if name in context.tensors]
        averaged = {name: context.tensors[name] for name in statistics if context.tensors[name].is_floating_point()}
        return _State(self, context.trained() | averaged)


class _State(MethodState):
    """State of Hare and Tortoise.

    Attributes:
        tortoise: The slow tensors by name: trained parameters and running statistics. To predict with them, load them
            into a copy of the model: `copy.load_state_dict(tortoise, strict=False)`.
    """

    def __init__(self, settings: HareTortoise, hare: dict[str, Tensor]) -> None:
        self._settings, self._hare = settings, hare
        self._low = any(widened(tensor) is not tensor for tensor in hare.values())
        self.tortoise = {name: widened(tensor.detach()).clone() for name, tensor in hare.items()}

    @torch.no_grad()
    def after_step(self, step: int) -> tuple[Update, ...]:
        if not self._hare:
            return ()
        fast, slow = list(self._hare.values()), list(self.tortoise.values())
        torch._foreach_lerp_(slow, [widened(t) for t in fast] if self._low else fast, 1 - self._settings.momentum)
        if step % self._settings.period:
            return ()
        return (Replace(fast, slow, self._settings.clear_moments),)

    def state_dict(self) -> dict[str, Any]:
        return {"tortoise": self.tortoise}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tortoise = fitting(state["tortoise"], self.tortoise, "a saved tortoise")
