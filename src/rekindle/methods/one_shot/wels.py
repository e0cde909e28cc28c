"""WELS: a random part of the parameters, chosen once for all, drawn afresh each round."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from rekindle.methods import Card, Edits, Evidence, UnitGraph, one_shot_method
from rekindle.methods.one_shot._fresh import Fresh
from rekindle.methods.one_shot._subset import ALL_PARAMETERS, COST, MOMENTS, UNDER_WEIGHT_NORM, Which, redraw_at_random

CARD = Card(
    title="WELS, weight-level splitting",
    source="The Impact of Reinitialization on Generalization in Convolutional Neural Networks, 1 (eq. 1, fixed "
    "subset); after Taha et al., Knowledge Evolution in Neural Networks (2021)",
    what="Draws a random part of the parameters afresh, the same part each round. w <- (1 - s) w + s w0, with s a mask "
    "of `fraction` ones fixed by mask_seed and w0 a fresh draw by seed.",
    when="Between rounds of training on the same, small data set: what is never drawn afresh (the fit hypothesis) "
    "learns to do without the rest. Keep mask_seed and give each round its own seed.",
    cost=COST,
    deviations=(
        "The part is chosen by mask_seed and the tensor's name, not stored: every round and every copy of the model "
        "finds the same elements.",
        "The part is taken tensor by tensor, each to the nearest whole number of elements; a tensor of one or two "
        "elements has no part at 0.2 and is listed.",
        ALL_PARAMETERS,
        UNDER_WEIGHT_NORM,
        MOMENTS,
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(10, 5)
>>> first = net.weight.detach().clone()
>>> _ = rk.wels_(net, fraction=0.2, seed=1)
>>> second = net.weight.detach().clone()
>>> _ = rk.wels_(net, fraction=0.2, seed=2)
>>> torch.equal(first != second, second != net.weight)
True
""",
)


@one_shot_method(CARD, identity={"fraction": 0.0})
class Wels:
    """Settings of WELS.

    Args:
        fraction: Part of each tensor that is drawn afresh: 0 changes nothing, 1 everything.
        mask_seed: Chooses the part; the treatment's own seed draws the values.
        which: All parameters (all), or only weights, without biases and normalization (weights).
        fresh: Where fresh values come from: each layer's own initializer (init), or reference=, which is also taken
            where the initializer is not known.
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]

    fraction: Annotated[float, Field(ge=0, le=1)] = 0.2
    mask_seed: int = 0
    which: Which = "all"
    fresh: Fresh = "init"
    skip: tuple[str, ...] = ()

    @property
    def scan_is_enough(self) -> bool:
        """Whether a model need not be traced: not where it must be told which parameters are weights."""
        return self.which == "all"

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each parameter; mask_seed chooses the elements, the seed draws their values."""
        return redraw_at_random(self, graph, evidence, seed, subset_seed=self.mask_seed)
