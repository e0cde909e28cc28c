"""What WELSR, WELS and DSD share: which tensors they look at, and how a random part of each is drawn afresh."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Protocol

from torch import Tensor

from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.graph import UnitGraph
from rekindle.graph.names import matches
from rekindle.graph.regions import UnitIndex
from rekindle.kernels.subsets import random_subset, share
from rekindle.methods.one_shot._fresh import UNKNOWN, Draw, Fresh, fresh_values
from rekindle.observe import Evidence
from rekindle.seeds import generator

Which = Literal["all", "weights"]
# What the cards of the three say alike.
COST = "One pass over the parameters; the chosen positions take eight bytes each while the plan is held."
ALL_PARAMETERS = (
    "All parameters count, as in eq. 1: also biases and normalization, whose draw is the constant that they start "
    "from. which='weights' leaves them alone."
)
UNDER_WEIGHT_NORM = "Under weight_norm gain and direction are the parameters; running statistics of BatchNorm are none."
MOMENTS = "Optimizer moments are cleared exactly at the elements that are drawn afresh."
TOO_SMALL = "too small: the fraction of it rounds to no element"


class Subset(Protocol):
    """The settings that all three have."""

    key: ClassVar[str]

    @property
    def fraction(self) -> float:
        """Part of the elements that is drawn afresh."""

    @property
    def which(self) -> Which:
        """All parameters, or weights only."""

    @property
    def fresh(self) -> Fresh:
        """Where fresh values come from."""

    @property
    def skip(self) -> tuple[str, ...]:
        """Patterns of tensor names to leave alone."""


def candidates(
    method: Subset, graph: UnitGraph, evidence: Evidence, seed: int
) -> tuple[dict[str, Draw], tuple[Skip, ...]]:
    """Return the tensors to look at with the way to draw each afresh, and those that are left alone."""
    weights = {weight.tensor for weight in graph.weights}
    drawn, skips = {}, []
    for name, shape in graph.parameters.items():
        if (method.which == "weights" and name not in weights) or name in evidence.frozen:
            continue  # the plan says why; what is frozen is not counted among the smallest of all either
        if matches(name, method.skip):
            skips.append(Skip(name, "named in skip"))
            continue
        draw = fresh_values(graph, evidence, name, shape, seed, method.key, method.fresh)
        if draw is None:
            skips.append(Skip(name, UNKNOWN))
        else:
            drawn[name] = draw
    return drawn, tuple(skips)


def redraw_at_random(method: Subset, graph: UnitGraph, evidence: Evidence, seed: int, subset_seed: int) -> Edits:
    """Return edits that draw a random part of each tensor afresh.

    Args:
        method: The settings.
        graph: The model.
        evidence: Initial weights, if given.
        seed: Seed of the values.
        subset_seed: Seed of the choice.
    """
    if method.fraction == 0:
        return Edits()
    drawn, skips = candidates(method, graph, evidence, seed)
    edits = []
    for name, draw in drawn.items():
        size = math.prod(graph.parameters[name])
        count = share(size, method.fraction)
        if count == 0:
            skips += (Skip(name, TOO_SMALL),)
            continue
        index = random_subset(size, count, generator(subset_seed, name, f"{method.key} subset"))
        edits.append(_redraw(name, UnitIndex((size,), (0,), index[:, None]), draw, method.key))
    return Edits(tuple(edits), skips)


def _redraw(name: str, where: UnitIndex, draw: Draw, key: str) -> Edit:
    def op(old: Tensor) -> Tensor:
        return where.read(draw()).to(old)

    return Edit(name, op, key, where)
