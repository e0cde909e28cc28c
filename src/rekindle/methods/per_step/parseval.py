"""Parseval: a penalty that keeps weight matrices close to orthogonal, in the loss."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from rekindle.methods import Card, MethodContext, MethodState, parseval, per_step_method
from rekindle.methods.per_step._layers import Matrix, matrices

CARD = Card(
    title="Parseval regularization",
    source="Chung et al. 2024, Parseval Regularization for Continual Reinforcement Learning; FIRE: D",
    what="Adds a penalty on the distance of every weight matrix from an isometry to the loss. lambda |W W^T - s I|^2 "
    "(Frobenius norm) on the smaller side of W; `strength` is lambda, `scale` is s.",
    when="When singular values spread during training and gradients vanish or explode with depth. Not where weights "
    "are meant to become small or sparse: it holds every singular value at sqrt(s).",
    cost="Two products of each weight with its Gram matrix of the smaller side, whatever the batch size; one node in "
    "the autograd graph for all layers. Measured in benchmarks/.",
    deviations=(
        "The Gram matrix is taken on the smaller side: W^T W for a tall matrix. Published code always takes W W^T, "
        "which a matrix with more rows than columns cannot bring to s I.",
        "A convolution is one matrix [out, in * kernel]; a grouped one is such a matrix in each group. A transposed "
        "convolution is seen the same way, out by in * kernel.",
        "Fused query, key and value projections are three matrices. Embeddings, tied ones included, are left out.",
        "Under weight_norm the penalty is on the weight that the layer uses, gain times direction. Weights that are "
        "computed in another way (spectral_norm) are left out.",
        "Every other weight takes part, also the first and the last layer. `keeper.state('parseval').skipped` "
        "tells what does not.",
        "FIRE sweeps lambda from 1e-5 to 1e-3; our default is 1e-3, its best value on CIFAR-10.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(2, 2)
>>> _ = net.weight.data.copy_(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
>>> keeper = rk.Keeper(net, methods="parseval:strength=0.1")
>>> round(keeper.penalty().item(), 4)  # 0.1 * (4 - 1)^2
0.9
>>> keeper.penalty().backward(); round(float(net.weight.grad[0, 0]), 4)  # 4 * 0.1 * (4 - 1) * 2
2.4
""",
)


@per_step_method(CARD, identity={"strength": 0.0})
class Parseval:
    """Settings of Parseval regularization.

    Args:
        strength: lambda; 0 changes nothing.
        scale: s, the square of the singular values that cost nothing.
        skip: Patterns of weight or tensor names to leave alone.
    """

    strength: Annotated[float, Field(ge=0)] = 1e-3
    scale: Annotated[float, Field(gt=0)] = 1.0
    skip: tuple[str, ...] = ()

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of Parseval regularization."""
        found, left = matrices(context, self.skip)
        return _State(self, found if self.strength else [], left)


class _State(MethodState):
    """State of Parseval.

    Attributes:
        skipped: Weights without a penalty, with the reason.
    """

    def __init__(self, settings: Parseval, found: list[Matrix], left: dict[str, str]) -> None:
        self._settings, self._reads, self.skipped = settings, [one.read for one in found], left

    def penalty(self) -> Tensor | None:
        if not self._reads:
            return None
        return parseval([read() for read in self._reads], self._settings.scale, self._settings.strength)
