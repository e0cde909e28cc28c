"""Mutually frozen: whole units set to zero, incoming row and outgoing column, for experiments on plasticity."""

from __future__ import annotations

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
    Group,
    PlanError,
    Skip,
    UnitGraph,
    generator,
    matches,
    one_shot_method,
    random_mask,
)
from rekindle.methods.one_shot._effective import edits_of, share_of_zeros, zeroed

CARD = Card(
    title="Mutually frozen weights",
    source="The paper on mutually frozen weights, appendix 6.5 (mutually frozen)",
    what="Sets whole units to zero with a given probability, so that they stay there. A chosen unit loses its incoming "
    "row with the bias, its normalization scale and shift, and its outgoing column: as long as the "
    "activation function takes zero to zero, no gradient reaches any of them.",
    when="For experiments: what this does to a network is what weight decay does slowly. Never to help a network; "
    "dirac_reset brings such units back.",
    cost="One pass over the parameters; the masks take a byte an element while the plan is held.",
    deviations=(
        "The probability is that of a unit; the share of parameters that this sets to zero is in the record's notes. "
        "The paper's levels (0.5, 0.8, 0.92, 0.98 for 0.2, 0.4, 0.6, 0.8) also count values below 1e-4.",
        "The bias goes with the row and the shift with the scale: with either left, the unit would still be active and "
        "its column would learn.",
        "Only units between two layers are chosen; kinds= adds those of residual streams, gates and attention scores "
        "(a query row with its key row).",
        "Running statistics of BatchNorm are left alone: scale and shift at zero silence the unit whatever they are.",
        "Under weight_norm the effective weight is set, through gain and direction.",
        "Optimizer moments are cleared exactly at the zeros; momentum would move them off.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
>>> record = rk.mutually_frozen_(net, probability=1.0, example=torch.zeros(1, 4))
>>> record.notices
('sets 21 of 23 parameters to zero: sparsity 0.9130', '3 of 3 units in 1 groups are frozen')
""",
    needs=("example",),
)


@one_shot_method(CARD, identity={"probability": 0.0})
class MutuallyFrozen:
    """Settings of mutually frozen weights.

    Args:
        probability: With which each unit is frozen; the paper uses 0.2, 0.4, 0.6 and 0.8.
        kinds: Which groups of units: hidden, stream (residual), gated, score (attention).
        skip: Patterns of tensor names; groups that have one of them are left alone.
    """

    key: ClassVar[str]

    probability: Annotated[float, Field(ge=0, le=1)] = 0.2
    kinds: tuple[Literal["hidden", "stream", "gated", "score"], ...] = ("hidden",)
    skip: tuple[str, ...] = ()

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each tensor that belongs to a chosen unit, and the sparsity as a notice."""
        if not graph.traced:
            raise PlanError(
                expected="example= for mutually_frozen, to tell which row and column belong to a unit",
                got="no example",
                fix="pass example= with an input of your model",
            )
        if self.probability == 0:
            return Edits()
        masks, skips, words = self._chosen(graph, seed)
        edits: list[Edit] = []
        for name, mask in masks.items():
            edits += edits_of(graph, name, partial(zeroed, mask=mask), self.key, mask)
        return Edits(tuple(edits), skips, (share_of_zeros(graph, masks.values()), words))

    def _chosen(self, graph: UnitGraph, seed: int) -> tuple[dict[str, Tensor], tuple[Skip, ...], str]:
        """Return for each tensor what belongs to a chosen unit, the groups that are left alone, and a word."""
        masks: dict[str, Tensor] = {}
        reasons = [(group, self._reason_to_skip(graph, group)) for group in graph.groups]
        groups = [group for group, reason in reasons if not reason]
        frozen = 0
        for group in groups:
            chosen = random_mask((group.size,), self.probability, generator(seed, group.name, self.key)).nonzero()[:, 0]
            frozen += len(chosen)
            _mark(graph, group, chosen, masks)
        skips = tuple(Skip(group.incoming[0].tensor, reason) for group, reason in reasons if reason)
        units = sum(group.size for group in groups)
        return masks, skips, f"{frozen} of {units} units in {len(groups)} groups are frozen"

    def _reason_to_skip(self, graph: UnitGraph, group: Group) -> str:
        tensors = {slot.tensor for slot in (*group.incoming, *group.norms, *group.outgoing)}
        if group.kind not in self.kinds:
            return f"its units are {group.kind}" + (
                "" if group.kind == "output" else f"; kinds='{group.kind}' adds them"
            )
        if any(matches(name, self.skip) for name in tensors):
            return "its group is named in skip"
        if any(weight.computed for name in tensors for weight in graph.weights_of(name)):
            return "a layer of its group uses a value computed from its weight, which cannot be set"
        return ""


def _mark(graph: UnitGraph, group: Group, chosen: Tensor, masks: dict[str, Tensor]) -> None:
    """Add what belongs to the chosen units to the masks."""
    norms = [slot for slot in group.norms if slot.kind in ("scale", "shift")]
    for slot in (*group.incoming, *norms, *group.outgoing) if len(chosen) else ():
        if slot.tensor in graph.gains:
            continue  # goes with its direction
        old = masks.get(slot.tensor, torch.zeros(graph.parameters[slot.tensor], dtype=torch.bool))
        masks[slot.tensor] = old | slot.where.at(chosen).mask(old)
