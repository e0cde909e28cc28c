"""DSD: the parameters of smallest magnitude drawn afresh."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import (
    Card,
    Edit,
    Edits,
    Evidence,
    Skip,
    UnitGraph,
    one_shot_method,
    share,
    smallest,
    smallest_of_all,
)
from rekindle.methods.one_shot._fresh import Draw, Fresh
from rekindle.methods.one_shot._subset import ALL_PARAMETERS, MOMENTS, TOO_SMALL, Which, candidates

CARD = Card(
    title="DSD, dense-sparse-dense by reinitialization",
    source="The Impact of Reinitialization on Generalization in Convolutional Neural Networks, 1 (eq. 1, weight "
    "magnitudes); after Han et al., DSD: Dense-Sparse-Dense Training (2017)",
    what="Draws the parameters of smallest magnitude afresh. w <- (1 - s) w + s w0, with s one at the `fraction` of "
    "smallest |w| and w0 a fresh draw by the layer's own initializer "
    "(fresh='reference': the values of reference=).",
    when="Between rounds of training on the same, small data set; the weakest of the four in the paper's Table 1, and "
    "a control for the others. Not where small weights carry meaning.",
    cost="One selection of the k-th smallest for each tensor, about a pass over the parameters. scope='global' "
    "counts all parameters twice for each tensor (the number of tensors times as long) and copies all magnitudes.",
    deviations=(
        "Small is judged within each tensor, to the nearest whole number of elements; scope='global' judges all "
        "together, where layers with a small initializer and zero biases go first. The paper does not say.",
        "Of equal magnitudes the first are taken, so that the result is the same on every device.",
        ALL_PARAMETERS,
        "Han et al. prune, train the rest and set the pruned weights to zero once; here, as in our source, they are "
        "drawn afresh, as often as you like.",
        "Under weight_norm gain and direction are the parameters.",
        MOMENTS,
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(5, 1, bias=False)
>>> net.weight.data = torch.tensor([[9.0, -0.1, 7.0, 8.0, -6.0]])
>>> record = rk.dsd_(net, fraction=0.2)
>>> (net.weight == torch.tensor([[9.0, -0.1, 7.0, 8.0, -6.0]])).tolist()
[[True, False, True, True, True]]
""",
)


@one_shot_method(CARD, identity={"fraction": 0.0})
class Dsd:
    """Settings of DSD.

    Args:
        fraction: Part of the elements that is drawn afresh: 0 changes nothing, 1 everything.
        scope: Smallest within each tensor (tensor), or of all tensors together (global).
        which: All parameters (all), or only weights, without biases and normalization (weights).
        fresh: Where fresh values come from: each layer's own initializer (init), or reference=, which is also taken
            where the initializer is not known.
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]

    fraction: Annotated[float, Field(ge=0, le=1)] = 0.2
    scope: Literal["tensor", "global"] = "tensor"
    which: Which = "all"
    fresh: Fresh = "init"
    skip: tuple[str, ...] = ()

    @property
    def scan_is_enough(self) -> bool:
        """Whether a model need not be traced: not where it must be told which parameters are weights."""
        return self.which == "all"

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each parameter; which elements it takes is known when their values are."""
        if self.fraction == 0:
            return Edits()
        drawn, skips = candidates(self, graph, evidence, seed)
        names = list(drawn)
        sizes = [math.prod(graph.parameters[name]) for name in names]
        if self.scope == "global":
            return Edits(_among_all(drawn, share(sum(sizes), self.fraction)), skips)
        counts = {name: share(size, self.fraction) for name, size in zip(names, sizes, strict=True)}
        skips += tuple(Skip(name, TOO_SMALL) for name in names if counts[name] == 0)
        return Edits(tuple(_own(name, counts[name], drawn[name]) for name in names if counts[name]), skips)


def _own(name: str, count: int, draw: Draw) -> Edit:
    """Return the edit for the smallest elements of one tensor."""
    return _edit(name, lambda old: smallest(old, count), draw)


def _among_all(drawn: dict[str, Draw], count: int) -> tuple[Edit, ...]:
    """Return the edits for the smallest elements of all tensors together."""
    names = list(drawn) if count else []
    limits: list[float] = []  # what the last tensor found; the next one checks it by counting

    def chosen(which: int, old: Tensor, *others: Tensor) -> Tensor:
        tensors = [*others[:which], old, *others[which:]]
        mask, limit = smallest_of_all(tensors, count, which, limits[-1] if limits else None)
        limits[:] = [limit]
        return mask

    return tuple(
        _edit(name, partial(chosen, n), drawn[name], reads=(*names[:n], *names[n + 1 :]))
        for n, name in enumerate(names)
    )


def _edit(name: str, chosen: Callable[..., Tensor], draw: Draw, reads: tuple[str, ...] = ()) -> Edit:
    def op(old: Tensor, *others: Tensor) -> Tensor:
        return torch.where(chosen(old, *others), draw().to(old), old)

    return Edit(name, op, Dsd.key, reads=reads, touched=chosen)
