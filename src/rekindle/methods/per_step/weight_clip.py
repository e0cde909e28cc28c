"""Weight clipping: after every step, weights are brought back into a multiple of their initial range."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field
from torch import Tensor

from rekindle.methods import (
    Card,
    Clamp,
    MethodContext,
    MethodState,
    Normal,
    Uniform,
    Update,
    Weight,
    matches,
    per_step_method,
)
from rekindle.methods.per_step._layers import biases

CARD = Card(
    title="Weight clipping",
    source="Elsayed et al. 2024, Weight Clipping for Deep Continual and Reinforcement Learning (arXiv 2407.01704)",
    what="After every step all weights and biases are clipped to a multiple of the range of their initializer. "
    "w <- clamp(w, -kappa s_l, kappa s_l), s_l the bound of the layer's initializer.",
    when="When weights grow without limit in streaming or reinforcement learning. Not on a pretrained model whose "
    "weights lie outside that range: the first step would cut them.",
    cost="One pass over weights and biases after the optimizer's step.",
    deviations=(
        "s_l is taken from the initializer by which the layer draws its own weights: a uniform initializer's bound (as "
        "published, 1/sqrt(fan-in) for torch's layers), sqrt(3) std of a normal one (the uniform initializer of the "
        "same spread), and 1/sqrt(fan-in) where the initializer is not known.",
        "A bias has the bound of its own uniform initializer, or 1/sqrt(fan-in) of its layer where it starts at a "
        "constant.",
        "Scales and shifts of normalization layers are left alone. Published code takes them for biases of the layer "
        "before, which would cut a scale of 1 down to kappa/sqrt(fan-in).",
        "Left alone too: weights under weight_norm or computed in another way, class tokens and positional parameters, "
        "embeddings of unknown initializer. `keeper.state('weight_clip').skipped` lists every trained parameter that "
        "is not clipped.",
        "The paper sweeps kappa from 1 to 5; our default is 2.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(4, 1)  # drawn from [-1/2, 1/2]
>>> keeper = rk.Keeper(net, methods="weight_clip:kappa=2")
>>> _ = net.weight.data.copy_(torch.tensor([[3.0, -3.0, 0.9, 0.1]]))
>>> _ = keeper.step(); [round(x, 1) for x in net.weight[0].tolist()]
[1.0, -1.0, 0.9, 0.1]
""",
)


@per_step_method(CARD, identity={"skip": ("*",)})
class WeightClip:
    """Settings of weight clipping.

    Args:
        kappa: How many times the initial range is allowed.
        skip: Patterns of tensor names to leave alone.
    """

    kappa: Annotated[float, Field(gt=0)] = 2.0
    skip: tuple[str, ...] = ()

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of weight clipping."""
        known = {name: bound for name, bound in _bounds(context).items() if not matches(name, self.skip)}
        trained = context.trained()
        clipped = {name: self.kappa * bound for name, bound in known.items() if name in trained}
        left = {name: _why(name, self.skip) for name in trained if name not in clipped}
        return _State([trained[name] for name in clipped], clipped, left)


class _State(MethodState):
    """State of weight clipping.

    Attributes:
        bounds: The largest magnitude of each clipped tensor, by name.
        skipped: Trained parameters that are not clipped, with the reason.
    """

    def __init__(self, tensors: list[Tensor], bounds: dict[str, float], left: dict[str, str]) -> None:
        self.bounds, self.skipped = bounds, left
        self._updates = (Clamp(tensors, list(bounds.values())),) if tensors else ()

    def after_step(self, step: int) -> tuple[Update, ...]:
        return self._updates


def _bounds(context: MethodContext) -> dict[str, float]:
    """Return s_l of every weight and bias of which one is known."""
    found: dict[str, float] = {}
    for weight in context.graph.weights:
        bound = _range(context, weight.tensor) or _by_fan_in(weight)
        if bound and weight.gain is None and not weight.computed:
            found[weight.tensor] = bound
    for name, weights in biases(context).items():
        found[name] = _range(context, name) or min(1 / math.sqrt(weight.fan_in) for weight in weights)
    return found


def _range(context: MethodContext, name: str) -> float | None:
    """Return the bound of the initializer by which a tensor is drawn, None where there is none."""
    initializer = context.graph.initializers.get(name)
    if isinstance(initializer, Uniform):
        return max(abs(initializer.low), abs(initializer.high)) or None
    return math.sqrt(3) * initializer.std if isinstance(initializer, Normal) and initializer.std else None


def _by_fan_in(weight: Weight) -> float | None:
    return None if weight.role == "embedding" else 1 / math.sqrt(weight.fan_in)


def _why(name: str, skip: tuple[str, ...]) -> str:
    return "named in skip" if matches(name, skip) else "neither a weight nor a bias of known range"
