"""Frozen weights: units whose neighboring factors are all near zero, so that no gradient reaches them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rekindle.graph import UnitGraph
from rekindle.graph.groups import Group, Slot
from rekindle.metrics._matrices import as_float, effective
from rekindle.metrics._units import scale_slots, unit_sizes, unit_sums, weight_slots
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

CUTOFF = 1e-2  # of the L2 norm of a factor (frozen weights, 6.2)
FREE, DOUBLE, TRIPLE = 0, 1, 2  # codes in the map of units

METRIC = MetricCard(
    key="frozen",
    title="Frozen weights",
    source="Frozen weights, 6.1, 6.2 and 6.5",
    what="A unit's factors are its incoming row, the scale of its normalization if there is one, and its outgoing "
    "column. Two neighboring factors of L2 norm below 1e-2: double frozen, their elements count; all three: "
    "triple frozen. Without a normalization there are two factors, and nothing can be triple. strict=True counts "
    "only where the scale and the outgoing column (without a normalization: row and column) are exactly zero. A "
    "group's reading is the fraction of its factors' elements that are frozen; the model's is the fraction over "
    "all groups, in which a weight counts once as rows and once as columns. Several writers, readers or "
    "normalizations of a unit are one factor each: all must be near zero. Groups that leave the model, or pass "
    "on without a weight, cannot be judged (details: left_out).",
    unit="fraction of parameters",
    direction="lower",
    range=(0.0, 1.0),
    needs=("weights", "units"),
    known="Triple frozen weights do not come back by gradient descent (stability: -eta lambda); double frozen ones do "
    "when the error is large enough against weight decay. Found after training with strong weight decay; freeing "
    "them helps when enough new data come (6.4), and can hurt with few. A bias or shift that is not near zero "
    "still feeds the outgoing column (details: fed).",
)


@dataclass(frozen=True, eq=False)
class _Factor:
    """One factor of all units of a group: its norm [units] and the number of its elements for a unit."""

    norm: Tensor
    size: int


def frozen(
    incoming: Tensor, scale: Tensor | None, outgoing: Tensor, *, cutoff: float = CUTOFF, strict: bool = False
) -> Tensor:
    """Return which factors are frozen, as booleans [units, factors], from the L2 norms [units] of each.

    A factor is frozen when it and a neighbor are below the cutoff; the factors stand in the order of the arguments.

    Args:
        incoming: Of the incoming rows.
        scale: Of the normalization's scale; None without one.
        outgoing: Of the outgoing columns.
        cutoff: Below it a factor counts as zero.
        strict: Scale and outgoing column exactly zero (6.5); without a normalization, row and column.

    Example:
        >>> zero, one = torch.zeros(1), torch.ones(1)
        >>> frozen(zero, zero, one), frozen(zero, one, zero)
        (tensor([[ True,  True, False]]), tensor([[False, False, False]]))
    """
    norms = torch.stack([incoming, outgoing] if scale is None else [incoming, scale, outgoing], dim=1)
    low = norms == 0 if strict else norms < cutoff
    pairs = low[:, :-1] & low[:, 1:]  # [units, factors - 1]
    if strict and scale is not None:
        pairs = pairs & pairs[:, -1:]  # the scale and the column in any case
    none = torch.zeros_like(pairs[:, :1])
    return torch.cat([pairs, none], 1) | torch.cat([none, pairs], 1)


def codes(factors: Tensor) -> Tensor:
    """Return for each unit whether it is free (0), double (1) or triple (2) frozen, from `frozen`."""
    all_three = factors.all(1) & (factors.shape[1] == 3)
    return factors.any(1).long() + all_three.long()


def measure(inputs: MetricInputs, *, cutoff: float = CUTOFF, strict: bool = False) -> Reading:
    """Return the fraction of each group's parameters that are frozen, and of the model's."""
    counts: dict[str, dict[str, int]] = {}
    units: dict[str, list[int]] = {}
    reasons: dict[str, str] = {}
    for group in inputs.graph.groups:
        reason = _cannot_be_judged(inputs.graph, group)
        if reason:
            reasons[group.name] = reason
            continue
        counts[group.name], units[group.name] = _count(inputs, group, cutoff, strict)
    total = {word: sum(count[word] for count in counts.values()) for word in ("all", "double", "triple", "fed")}
    parts = {name: count["double"] / max(count["all"], 1) for name, count in counts.items()}
    details = {
        "triple": {name: count["triple"] / max(count["all"], 1) for name, count in counts.items()},
        "triple_summary": total["triple"] / max(total["all"], 1),
        "counts": counts,
        "map": units,
        "fed": total["fed"],
        "left_out": reasons,
    }
    return Reading(METRIC.key, total["double"] / max(total["all"], 1), parts, details)


def _cannot_be_judged(graph: UnitGraph, group: Group) -> str:
    if group.leaves or group.through or not weight_slots(graph, group.outgoing):
        return "its units leave the model, or pass on without a weight"
    tensors = {slot.tensor for slot in (*group.incoming, *group.outgoing)}
    if odd := next((name for name in _tensors(group) if name in graph.not_plain), ""):
        return f"{odd}: {graph.not_plain[odd]}"
    if any(weight.computed for tensor in tensors for weight in graph.weights_of(tensor)):
        return "a layer uses a value computed from its weight"
    return "" if weight_slots(graph, group.incoming) else "no weight writes its units"


def _tensors(group: Group) -> list[str]:
    return [slot.tensor for slot in (*group.incoming, *group.norms, *group.outgoing)]


def _count(inputs: MetricInputs, group: Group, cutoff: float, strict: bool) -> tuple[dict[str, int], list[int]]:
    graph = inputs.graph
    factors = [_factor(inputs, weight_slots(graph, group.incoming), group.size)]
    if scales := scale_slots(group):
        factors.append(_factor(inputs, scales, group.size))
    factors.append(_factor(inputs, weight_slots(graph, group.outgoing), group.size))
    norms = [factor.norm for factor in factors]
    cold = frozen(norms[0], norms[1] if scales else None, norms[-1], cutoff=cutoff, strict=strict)
    sizes = torch.tensor([factor.size for factor in factors])
    kinds = codes(cold)
    fed = (kinds > FREE) & ~_silent(inputs, group, cutoff, strict)
    count = {
        "all": int(sizes.sum()) * group.size,
        "double": int((cold * sizes).sum()),
        "triple": int((kinds == TRIPLE).sum()) * int(sizes.sum()),
        "fed": int(fed.sum()),
    }
    return count, kinds.tolist()


def _factor(inputs: MetricInputs, slots: list[Slot], units: int) -> _Factor:
    squares = torch.zeros(units, dtype=torch.float64)
    for slot in slots:
        held = inputs.graph.weights_of(slot.tensor)
        values = effective(inputs.tensors, held[0]) if held else as_float(inputs.tensors[slot.tensor])
        squares += unit_sums(slot.where, values.square()).double().cpu()
    return _Factor(squares.sqrt(), sum(unit_sizes(slot.where) for slot in slots))


def _silent(inputs: MetricInputs, group: Group, cutoff: float, strict: bool) -> Tensor:
    """Tell of which units the constant is near zero too: the last shift, or the bias without a normalization."""
    shifts = [slot for slot in group.norms if slot.kind == "shift"]
    constants = shifts or ([] if scale_slots(group) else [slot for slot in group.incoming if slot.kind == "bias"])
    norm = _factor(inputs, constants, group.size).norm
    return norm == 0 if strict else norm < cutoff


def unit_counts(reading: Reading) -> dict[str, tuple[int, int, int]]:
    """Return for each group how many units are free, double and triple frozen."""
    return {
        name: (kinds.count(FREE), kinds.count(DOUBLE), kinds.count(TRIPLE))
        for name, kinds in reading.details["map"].items()
    }
