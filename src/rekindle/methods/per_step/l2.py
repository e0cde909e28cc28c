"""L2: a penalty on the size of the parameters, in the loss."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from rekindle.methods import Card, MethodContext, MethodState, per_step_method, squared_distance
from rekindle.methods.per_step._layers import chosen

CARD = Card(
    title="L2 regularization",
    source="Soft Weight Rescaling: D.2; Krogh and Hertz 1991, A Simple Weight Decay Can Improve Generalization",
    what="Adds a penalty on the size of the parameters to the loss. lambda/2 |theta|^2, whose gradient is "
    "lambda theta; `strength` is lambda.",
    when="The simple baseline against growing weights. With Adam it is not the same as the weight decay of AdamW, "
    "which stands outside the moments. Layers before a normalization only change their effective learning rate.",
    cost="One pass over the parameters for the value and one for the gradient; one node in the autograd graph.",
    deviations=(
        "The paper sweeps lambda from 1e-5 to 0.1 and names no default; ours is 1e-4.",
        "theta is every trained parameter, norm scales included, as in the paper; which=weights takes weights and "
        "embeddings only.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(2, 1)
>>> _ = net.load_state_dict({"weight": torch.tensor([[3.0, 4.0]]), "bias": torch.tensor([0.0])})
>>> keeper = rk.Keeper(net, methods="l2:strength=0.1")
>>> round(keeper.penalty().item(), 4)  # 0.1 / 2 * (9 + 16)
1.25
>>> keeper.penalty().backward(); [round(float(x), 4) for x in net.weight.grad[0]]
[0.3, 0.4]
""",
)


@per_step_method(CARD, identity={"strength": 0.0})
class L2:
    """Settings of L2.

    Args:
        strength: lambda; 0 changes nothing.
        which: All trained parameters, or only weights (embeddings included, no biases and norms).
        skip: Patterns of tensor names to leave alone.
    """

    strength: Annotated[float, Field(ge=0)] = 1e-4
    which: Literal["all", "weights"] = "all"
    skip: tuple[str, ...] = ()

    @property
    def scan_is_enough(self) -> bool:
        """Whether a model need not be traced: not where it must be told which parameters are weights."""
        return self.which == "all"

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of L2."""
        tensors = list(chosen(context, self.which, self.skip).values())
        return _State(tensors, self.strength) if self.strength and tensors else MethodState()


class _State(MethodState):
    def __init__(self, tensors: list[Tensor], strength: float) -> None:
        self._tensors, self._factor = tensors, strength / 2

    def penalty(self) -> Tensor:
        return squared_distance(self._tensors, None, self._factor)
