"""WELSR: a random part of the parameters drawn afresh, another one each round."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from rekindle.methods import Card, Edits, Evidence, UnitGraph, one_shot_method
from rekindle.methods.one_shot._fresh import Fresh
from rekindle.methods.one_shot._subset import ALL_PARAMETERS, COST, MOMENTS, UNDER_WEIGHT_NORM, Which, redraw_at_random

CARD = Card(
    title="WELSR, random weight-level splitting",
    source="The Impact of Reinitialization on Generalization in Convolutional Neural Networks, 1 (eq. 1, random "
    "subset); after Taha et al., Knowledge Evolution in Neural Networks (2021)",
    what="Draws a random part of the parameters afresh, another part each round. w <- (1 - s) w + s w0, with s a "
    "random mask of `fraction` ones and w0 a fresh draw by the layer's own initializer "
    "(fresh='reference': the values of reference=).",
    when="Between rounds of training on the same, small data set. Give each round its own seed: the seed chooses the "
    "part. Not on large data sets, where the paper found no gain.",
    cost=COST,
    deviations=(
        "The part is taken tensor by tensor, each to the nearest whole number of elements, so that no layer is hit "
        "more than another; the paper does not say. A tensor of one or two elements has no part at 0.2 and is listed.",
        ALL_PARAMETERS,
        UNDER_WEIGHT_NORM,
        MOMENTS,
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(10, 5)
>>> old = net.weight.detach().clone()
>>> record = rk.welsr_(net, fraction=0.2, seed=1)
>>> int((net.weight != old).sum())
10
""",
)


@one_shot_method(CARD, identity={"fraction": 0.0})
class Welsr:
    """Settings of WELSR.

    Args:
        fraction: Part of each tensor that is drawn afresh: 0 changes nothing, 1 everything.
        which: All parameters (all), or only weights, without biases and normalization (weights).
        fresh: Where fresh values come from: each layer's own initializer (init), or reference=, which is also taken
            where the initializer is not known.
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]

    fraction: Annotated[float, Field(ge=0, le=1)] = 0.2
    which: Which = "all"
    fresh: Fresh = "init"
    skip: tuple[str, ...] = ()

    @property
    def scan_is_enough(self) -> bool:
        """Whether a model need not be traced: not where it must be told which parameters are weights."""
        return self.which == "all"

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each parameter; the seed chooses the elements and draws their values."""
        return redraw_at_random(self, graph, evidence, seed, subset_seed=seed)
