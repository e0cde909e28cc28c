"""Mono-sparse: each weight set to zero with a probability and an identity mapping added back, for experiments."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from rekindle.methods import Card, Edits, Evidence, UnitGraph, one_shot_method
from rekindle.methods.one_shot._sparse import COST, NOT_TREATED, sparsify

CARD = Card(
    title="Mono-sparse weights",
    source="The paper on mutually frozen weights, appendix 6.5 (mono-sparse)",
    what="Sets each weight to zero with a given probability and adds an identity mapping back. W <- m * W + Dirac with "
    "m a random mask, as in doubly_sparse; one-dimensional tensors get 1.0 added after their mask.",
    when="For experiments: as sparse as the other two, and still able to learn. To revive a trained network use "
    "dirac_reset.",
    cost=COST,
    deviations=(
        "The probability is what is set; the share of zeros before the Dirac is added is in the record's notes.",
        "1.0 is added to all one-dimensional tensors ('such as batch normalization multiplication factors'), also to "
        "biases and shifts.",
        "Linear weights get the identity as far as there are rows and columns; fused projections one for each of "
        "queries, keys and values, grouped convolutions one for each group.",
        NOT_TREATED,
        "Under weight_norm the effective weight is treated, through gain and direction.",
        "Optimizer moments are cleared exactly where something was set or added.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(3, 2)
>>> record = rk.mono_sparse_(net, probability=1.0)
>>> net.weight.tolist(), net.bias.tolist()
([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [1.0, 1.0])
""",
)


@one_shot_method(CARD, identity={"skip": ("*",)})
class MonoSparse:
    """Settings of mono-sparse weights.

    Args:
        probability: With which each element is set to zero; the paper uses 0.5, 0.8, 0.92 and 0.98.
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]

    probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    skip: tuple[str, ...] = ()

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each weight and each one-dimensional tensor, and the sparsity as a notice."""
        return sparsify(graph, self.probability, self.skip, seed, self.key, dirac=1.0)
