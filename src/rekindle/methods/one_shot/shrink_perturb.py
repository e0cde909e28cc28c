"""Shrink and perturb: move every parameter part of the way back to its initial value, or to a fresh draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from rekindle.methods import Card, Edit, Edits, Evidence, Skip, UnitGraph, matches, one_shot_method

CARD = Card(
    title="Shrink and perturb (S&P)",
    source="Ash and Adams, On Warm-Starting Neural Network Training (2020); as used in FIRE, D and Tables 6-10",
    what="Moves every parameter a part of the way back to its start. w <- (1 - shrink) w + shrink w0, with w0 the "
    "initial weights (reference=), or without them a fresh draw by the layer's own initializer. With perturb it is "
    "the original with two knobs: w <- (1 - shrink) w + perturb w0.",
    when="Between data sets, as the simple and strong baseline; 0.8 is the usual strength. Not where what was learned "
    "is worth more than plasticity: it forgets in every direction alike.",
    cost="One pass over the parameters.",
    deviations=(
        "Where no initial weights are given, w0 is a fresh draw, so that no initial checkpoint is needed.",
        "All parameters are moved, also biases and normalization (their draw is the constant they start from); running "
        "statistics of BatchNorm are not.",
        "Optimizer moments are cleared where weights move (published code keeps them).",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Linear(8, 6)
>>> start = {name: tensor.clone() for name, tensor in net.state_dict().items()}
>>> _ = net.weight.data.add_(1.0)
>>> record = rk.shrink_perturb_(net, shrink=0.8, reference=start)
>>> torch.allclose(net.weight, start["weight"] + 0.2)
True
""",
    aliases=("s&p", "snp", "shrink_and_perturb"),
)


@one_shot_method(CARD, identity={"shrink": 0.0})
class ShrinkPerturb:
    """Settings of shrink and perturb.

    Args:
        shrink: How far to go: 0 changes nothing, 1 goes all the way.
        noise: Where to: the initial weights (reference), a fresh draw (init), or the one that can be had (auto).
        perturb: Weight of w0 on its own, for the original with two knobs; None takes `shrink`.
        skip: Patterns of tensor names to leave alone.
    """

    key: ClassVar[str]
    scan_is_enough: ClassVar[bool] = True

    shrink: Annotated[float, Field(ge=0, le=1)] = 0.8
    noise: Literal["auto", "init", "reference"] = "auto"
    perturb: Annotated[float, Field(ge=0)] | None = None
    skip: tuple[str, ...] = ()

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each parameter."""
        amount = self.shrink if self.perturb is None else self.perturb
        if self.shrink == 0 and amount == 0:
            return Edits()
        edits, skips = [], []
        for name, shape in graph.parameters.items():
            if matches(name, self.skip):
                skips.append(Skip(name, "named in skip"))
            elif not self._stored(evidence) and not graph.has_initializer(name):
                skips.append(Skip(name, "its initializer is not known; pass reference="))
            else:
                edits.append(Edit(name, self._op(graph, evidence, name, shape, amount, seed)))
        return Edits(tuple(edits), tuple(skips))

    def _stored(self, evidence: Evidence) -> bool:
        return self.noise == "reference" or (self.noise == "auto" and evidence.reference is not None)

    def _op(
        self, graph: UnitGraph, evidence: Evidence, name: str, shape: tuple[int, ...], amount: float, seed: int
    ) -> Callable[[Tensor], Tensor]:
        start = evidence.initial(name, shape, self.key) if self._stored(evidence) else None

        def op(old: Tensor) -> Tensor:
            drawn = graph.fresh(name, shape, seed, self.key) if start is None else start
            assert drawn is not None
            return (1 - self.shrink) * old + amount * drawn.to(old)

        return op
