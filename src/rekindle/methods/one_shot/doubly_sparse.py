"""Doubly sparse: each weight set to zero with a probability, for experiments on loss of plasticity."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from rekindle.methods import Card, Edits, Evidence, UnitGraph, one_shot_method
from rekindle.methods.one_shot._sparse import COST, NOT_TREATED, sparsify

CARD = Card(
    title="Doubly sparse weights",
    source="The paper on mutually frozen weights, appendix 6.5 (doubly sparse)",
    what="Sets each weight to zero with a given probability, independently. W <- m * W with m a random mask of zeros "
    "and ones, over weights and one-dimensional tensors.",
    when="For experiments: it makes a network as sparse as mutually_frozen does, without zeros that hold each other in "
    "pairs of a row and a column. Never to help a network.",
    cost=COST,
    deviations=(
        "The probability is what is set; what comes of it is in the record's notes. The paper's second list of levels "
        "(0.75, 0.9, 0.96, 0.99 for 0.5, 0.8, 0.92, 0.98) also counts values below 1e-4, half of its fresh weights.",
        "One-dimensional tensors (biases, normalization) are masked too: mono-sparse weights, made in the same way, "
        "get them back.",
        NOT_TREATED,
        "Under weight_norm the effective weight is masked, through gain and direction.",
        "Optimizer moments are cleared exactly at the zeros.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(100, 100, bias=False)
>>> record = rk.doubly_sparse_(net, probability=0.8)
>>> 0.78 < float((net.weight == 0).float().mean()) < 0.82
True
""",
)


@one_shot_method(CARD, identity={"probability": 0.0})
class DoublySparse:
    """Settings of doubly sparse weights.

    Args:
        probability: With which each element is set to zero; the paper uses 0.5, 0.8, 0.92 and 0.98.
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]

    probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    skip: tuple[str, ...] = ()

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each weight and each one-dimensional tensor, and the sparsity as a notice."""
        return sparsify(graph, self.probability, self.skip, seed, self.key)
