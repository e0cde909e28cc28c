"""Spectral regularization: a penalty that keeps the largest singular value of every weight close to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import (
    Card,
    MethodContext,
    MethodState,
    Update,
    generator,
    matches,
    per_step_method,
    power_iteration,
    spectral,
    wide_dtype,
)
from rekindle.methods.per_step._layers import Matrix, biases, matrices, shifts
from rekindle.methods.per_step._saved import fitting

CARD = Card(
    title="Spectral regularization",
    source="Lewandowski et al. 2025, Learning Continually by Spectral Regularization (arXiv 2406.06811)",
    what="Adds a penalty on the largest singular value of every weight, and on the size of biases, to the loss. "
    "lambda (sum_l (sigma_1(W_l)^k - 1)^2 + sum_l |b_l|^(2k)); `strength` is lambda, `power` is k. sigma_1 comes from "
    "one power iteration a step on a vector that is kept.",
    when="When tasks follow one another and weights grow in few directions. It leaves small singular values alone, so "
    "it disturbs a single task less than L2.",
    cost="Three products of each weight with a vector a step, whatever the batch size. Measured in benchmarks/.",
    deviations=(
        "The vector moves once a step, in keeper.step(), not with each loss: gradient accumulation gives the same "
        "result as one large batch. sigma_1 is |W^T u| with u held constant in the gradient.",
        "The vector is drawn by seed and tensor name and iterated ten times at the start, so that the first steps do "
        "not see a random value for sigma_1.",
        "A convolution is one matrix [out, in * kernel], a grouped one such a matrix in each group; fused query, key "
        "and value are three matrices; embeddings are left out.",
        "Gains, the scales of normalization layers, are left out; in the source they go toward 1.",
        "Additive parameters are biases and shifts of normalization layers. Positional embeddings and class tokens are "
        "left out.",
        "The default lambda of 1e-3 is ours.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(2, 2, bias=False)
>>> _ = net.weight.data.copy_(torch.tensor([[2.0, 0.0], [0.0, 0.5]]))
>>> keeper = rk.Keeper(net, methods="spectral:strength=0.1,power=2")
>>> round(keeper.penalty().item(), 4)  # 0.1 * (2^2 - 1)^2
0.9
""",
)


@per_step_method(CARD, identity={"strength": 0.0})
class Spectral:
    """Settings of spectral regularization.

    Args:
        strength: lambda; 0 changes nothing.
        power: k.
        skip: Patterns of weight or tensor names to leave alone.
    """

    strength: Annotated[float, Field(ge=0)] = 1e-3
    power: Annotated[float, Field(ge=1)] = 2.0
    skip: tuple[str, ...] = ()

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of spectral regularization."""
        found, left = matrices(context, self.skip)
        added = [name for name in (*biases(context), *shifts(context)) if not matches(name, self.skip)]
        tensors = [context.tensors[name] for name in added]
        return _State(self, found, tensors, left, context.seed) if self.strength and (found or added) else MethodState()


class _State(MethodState):
    """State of spectral regularization.

    Attributes:
        skipped: Weights without a penalty, with the reason.
        vectors: For each weight the vector that stands for its largest singular value.
    """

    def __init__(
        self, settings: Spectral, found: list[Matrix], added: list[Tensor], left: dict[str, str], seed: int
    ) -> None:
        self._settings, self._found, self._added, self.skipped = settings, found, added, left
        self.vectors = {one.name: _drawn(one, seed) for one in found}
        for _ in range(10):
            self.after_step(0)

    def penalty(self) -> Tensor:
        vectors = list(self.vectors.values())
        return spectral(self._matrices(), vectors, self._added, self._settings.power, self._settings.strength)

    def after_step(self, step: int) -> tuple[Update, ...]:
        with torch.no_grad():
            moved = power_iteration(self._matrices(), list(self.vectors.values()))
        self.vectors = dict(zip(self.vectors, moved, strict=True))
        return ()

    def state_dict(self) -> dict[str, Any]:
        return {"vectors": self.vectors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.vectors = fitting(state["vectors"], self.vectors, "a saved vector")

    def _matrices(self) -> list[Tensor]:
        return [one.read() for one in self._found]


def _drawn(matrix: Matrix, seed: int) -> Tensor:
    """Return a unit vector [..., out] drawn for a weight."""
    weight = matrix.read().detach()
    values = torch.randn(weight.shape[:-1], generator=generator(seed, matrix.name, "spectral"))
    return torch.nn.functional.normalize(values, dim=-1).to(weight.device, wide_dtype(weight.dtype))
