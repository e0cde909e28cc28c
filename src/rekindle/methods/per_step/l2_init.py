"""L2 Init: a penalty on the distance from the initial parameters, in the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from rekindle.methods import Card, MethodContext, MethodState, per_step_method, squared_distance
from rekindle.methods.per_step._layers import chosen
from rekindle.methods.per_step._saved import fitting

CARD = Card(
    title="L2 Init, regenerative regularization",
    source="Kumar et al. 2023, Maintaining Plasticity via Regenerative Regularization; Soft Weight Rescaling: D.2; "
    "FIRE: D",
    what="Adds a penalty on the distance from the initial parameters to the loss. form=half: lambda/2 |theta - "
    "theta0|^2 (Soft Weight Rescaling); form=full: lambda |W - W0|^2 (FIRE), twice as strong at the same lambda.",
    when="When data change over and over and the initial weights are a good place to be pulled to. Not for a "
    "pretrained model unless its weights are given as reference.",
    cost="A copy of the parameters, one pass over them for the value and one for the gradient.",
    deviations=(
        "FIRE speaks of weight matrices; both forms take every trained parameter, as Kumar et al. do. which=weights "
        "takes weights and embeddings only.",
        "theta0 is what the Keeper was given as reference=, else the weights at its start. It is part of the Keeper's "
        "state, so that a resumed run keeps the first start.",
        "Lambda is swept from 1e-5 to 0.1 (Soft Weight Rescaling) and from 1e-5 to 1e-3 (FIRE) and has no default "
        "there; ours is 1e-4.",
        "keeper.rebase() takes the weights of that moment for theta0; the papers never move it.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(2, 1)
>>> keeper = rk.Keeper(net, methods="l2_init:strength=0.1")
>>> _ = net.weight.data.add_(torch.tensor([[3.0, 4.0]]))
>>> round(keeper.penalty().item(), 4)  # 0.1 / 2 * (9 + 16)
1.25
>>> round(rk.Keeper(net, methods="l2_init:strength=0.1").penalty().item(), 4)
0.0
""",
    aliases=("l2init", "regenerative"),
)


@per_step_method(CARD, identity={"strength": 0.0})
class L2Init:
    """Settings of L2 Init.

    Args:
        strength: lambda; 0 changes nothing.
        form: lambda/2 |theta - theta0|^2 (half) or lambda |W - W0|^2 (full).
        which: All trained parameters, or only weights (embeddings included, no biases and norms).
        skip: Patterns of tensor names to leave alone.
    """

    strength: Annotated[float, Field(ge=0)] = 1e-4
    form: Literal["half", "full"] = "half"
    which: Literal["all", "weights"] = "all"
    skip: tuple[str, ...] = ()

    @property
    def scan_is_enough(self) -> bool:
        """Whether a model need not be traced: not where it must be told which parameters are weights."""
        return self.which == "all"

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of L2 Init."""
        tensors = chosen(context, self.which, self.skip)
        factor = self.strength / 2 if self.form == "half" else self.strength
        return _State(tensors, context.reference, factor) if self.strength and tensors else MethodState()


class _State(MethodState):
    def __init__(self, tensors: dict[str, Tensor], reference: Mapping[str, Tensor], factor: float) -> None:
        self._tensors, self._factor = tensors, factor
        self._live = list(tensors.values())
        self._begin(reference, "initial weights")

    def penalty(self) -> Tensor:
        return squared_distance(self._live, self._starts, self._factor)

    def rebase(self) -> None:
        self._starts = [tensor.detach().clone() for tensor in self._live]

    def state_dict(self) -> dict[str, Any]:
        return {"start": dict(zip(self._tensors, self._starts, strict=True))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._begin(state["start"], "saved initial weights")

    def _begin(self, starts: Mapping[str, Tensor], what: str) -> None:
        self._starts = list(fitting(starts, self._tensors, what).values())
