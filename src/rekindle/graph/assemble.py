"""From what the rules wrote down to the unit graph: units are tied labels, groups are units with equal ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from rekindle.graph.groups import Group, GroupKind, Slot, owner_of
from rekindle.graph.initializers import Initializer
from rekindle.graph.lazy import Lazy
from rekindle.graph.lipschitz import steps_of
from rekindle.graph.operations import scale_after
from rekindle.graph.regions import UnitIndex
from rekindle.graph.roles import weights_of
from rekindle.graph.scaling.constraints import Homogeneity
from rekindle.graph.scaling.walk import homogeneity
from rekindle.graph.trace_log import TraceLog, connected
from rekindle.graph.unit_graph import NO_AXIS, OUTSIDE, UnitGraph
from rekindle.graph.units import ADD, MUL, OUTPUT, PRODUCT, SEEPS, Family, Port, families_of, flags_of
from rekindle.graph.unsure import maybe_first, maybe_last, products_are_seen
from rekindle.kernels.initializers import Constant

NORMS = ("scale", "shift", "mean", "var")


def assemble(
    trace_log: TraceLog,
    parameters: Mapping[str, tuple[int, ...]],
    aliases: Mapping[str, tuple[str, ...]],
    initializers: Mapping[str, Initializer],
    gains: Mapping[str, tuple[str, int]],
) -> UnitGraph:
    """Build the graph; the log gives its calls away to it."""
    root = trace_log.components()
    apart = trace_log.components(lambda tag: tag != "product")  # queries and keys are tied by their product alone
    flags = flags_of(trace_log, root)
    _opaque_reasons(trace_log, root)
    is_key = _keys(trace_log, apart)
    ports, families = families_of(trace_log, root, flags, is_key)
    groups, group_of = _groups(trace_log, is_key, ports, families)
    through = _through(trace_log, root, group_of)
    groups = [replace(g, through=tuple(groups[n].name for n in sorted(through[i]))) for i, g in enumerate(groups)]
    covered = {slot.tensor for g in groups for slot in (*g.incoming, *g.norms, *g.outgoing)}
    neutral = {slot.tensor: Constant(slot.neutral) for g in groups for slot in g.norms if slot.neutral is not None}
    whole = _with_calls(trace_log)
    return UnitGraph(
        weights=weights_of(trace_log, root, apart, parameters, _leaving(trace_log, root, flags)),
        groups=tuple(groups),
        uncovered={name: why for name, why in _reasons(whole, parameters).items() if name not in covered},
        not_understood=tuple(trace_log.not_understood),
        aliases=aliases,
        initializers={**neutral, **initializers},
        gains=gains,
        parameters=parameters,
        homogeneity=Lazy(lambda: _homogeneity(whole, groups, root, group_of)),
        steps=Lazy(lambda: steps_of(whole)),
        roles_known=products_are_seen(whole),
        maybe_first=maybe_first(whole),
        maybe_last=maybe_last(whole, root),
    )


def _with_calls(trace_log: TraceLog) -> TraceLog:
    """Return a copy of the log with the calls, and take them out of the log itself.

    Each call holds the log. With the calls in it they would keep each other in memory until garbage is collected.
    """
    whole = replace(trace_log)
    trace_log.tape, trace_log.calls = [], []
    return whole


def _homogeneity(trace_log: TraceLog, groups: Sequence[Group], root: np.ndarray, group_of: np.ndarray) -> Homogeneity:
    """Walk through the computation once more for scale, and say of each group what is not homogeneous on its way."""
    constraints, curves = homogeneity(trace_log, groups, scale_after)
    found: dict[str, dict[str, None]] = {group.name: {} for group in groups}
    for labels, location in curves:
        for number in np.unique(group_of[root[labels.numpy()]]).tolist():
            if number >= 0:
                found[groups[number].name].setdefault(location)
    return Homogeneity(constraints, {name: tuple(places) for name, places in found.items()})


def _opaque_reasons(trace_log: TraceLog, root: np.ndarray) -> None:
    """Say of the parameters whose units, or units tied to them, enter something unknown that they do.

    That is why they are in no group, whatever else was noted on the way; but what a tensor's own uses say comes first.
    """
    entered = np.full(trace_log.total, -1)
    for number, (labels, _) in reversed(list(enumerate(trace_log.opaque_labels))):
        entered[root[labels.numpy()]] = number
    forbidden = {name: why for name, why in trace_log.reasons.items() if name in trace_log.forbidden}
    for axis in trace_log.axes:
        numbers = entered[root[axis.start : axis.start + axis.size]]
        if axis.tensor not in forbidden and (numbers >= 0).any():
            why = trace_log.opaque_labels[int(numbers[numbers >= 0].min())][1]
            owner = next((name for name, own in forbidden.items() if own == why), None)
            entering = f"its units enter {why}, which is not understood"
            trace_log.reasons[axis.tensor] = entering if owner is None else f"its units are those of {owner}: {why}"


def _reasons(trace_log: TraceLog, parameters: Iterable[str]) -> dict[str, str]:
    """Return for each parameter why it would have no slot; what some operation was given is used."""
    given = [value for call in trace_log.calls for value in call.values]
    used = {value.param for value in given}.union(*(value.sources for value in given))
    return {name: trace_log.reasons.get(name, NO_AXIS if name in used else OUTSIDE) for name in parameters}


def _keys(trace_log: TraceLog, apart: np.ndarray) -> np.ndarray:
    """Tell for each label whether it is a key: what queries are multiplied with, in all products that they are in.

    Keys that meet positions and queries that meet positions (DeBERTa) still are two sides; the first product tells
    which is which. Where a side meets itself there are no keys. The two sides are those of a graph with two copies of
    each label, in which a product connects the first copy of one to the second of the other: labels whose copies stay
    apart have a side.
    """
    pairs = [apart[torch.stack(tie[:2]).numpy()] for tie in trace_log.ties if tie[2] == "product"]
    if not pairs:
        return np.zeros(trace_log.total, dtype=bool)
    total, (a, b) = trace_log.total, np.concatenate(pairs, axis=1)
    side = connected(2 * total, np.r_[a, a + total], np.r_[b + total, b])
    whole = np.minimum(side[:total], side[total:])  # the same for both sides of a set of products
    met, order = np.unique(np.stack([a, b], axis=1).reshape(-1), return_index=True)
    met = met[np.argsort(order)]
    sets, first = np.unique(whole[met], return_index=True)
    query_side = np.full(2 * total, -1)
    query_side[sets] = side[met[first]]  # what came first is a query
    one_sided = np.zeros(2 * total, dtype=bool)
    one_sided[whole[met[side[met] == side[met + total]]]] = True
    for left, right in trace_log.products:
        one_sided[whole[np.intersect1d(apart[left.numpy()], apart[right.numpy()])]] = True
    is_key = np.zeros(total, dtype=bool)
    is_key[met] = (side[met] != query_side[whole[met]]) & ~one_sided[whole[met]]
    return is_key[apart]


def _leaving(trace_log: TraceLog, root: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """Tell for each root whether its unit has a port and leaves the model."""
    used = np.zeros(trace_log.total, dtype=bool)
    for use in trace_log.uses:
        used[root[use.labels.numpy()]] = True
    return used & (flags & OUTPUT > 0)


def _groups(
    trace_log: TraceLog, is_key: np.ndarray, ports: Sequence[Port], families: Sequence[Family]
) -> tuple[list[Group], np.ndarray]:
    """Return a group for each family, and for each root the number of its group, or -1."""
    groups: list[Group] = []
    group_of = np.full(trace_log.total, -1)
    values = _values(trace_log)
    taken: dict[str, int] = {}
    for family in families:
        slots: dict[str, list[Slot]] = {"incoming": [], "norms": [], "outgoing": []}
        writers: list[tuple[Slot, np.ndarray]] = []
        for number, labels in zip(family.ports, family.labels, strict=True):
            for side, part in _sides(ports[number], labels, is_key):
                slots[side].append(_slot(trace_log, ports[number], part))
                writers += [(slots[side][-1], part)] if side == "incoming" else []
        if not writers:
            continue
        kind = _kind(family.flags, slots)
        writer, labels = min(writers, key=lambda each: each[0].kind != "weight")  # no bias where there is a weight
        name = _name(writer, kind, bool(values[labels[0, 0]]), taken)
        group_of[family.roots] = len(groups)
        incoming, norms, outgoing = (tuple(slots[side]) for side in ("incoming", "norms", "outgoing"))
        leaves = bool(family.flags & (OUTPUT | SEEPS))
        groups.append(Group(name, len(family.roots), kind, incoming, norms, outgoing, leaves=leaves))
    return groups, group_of


def _values(trace_log: TraceLog) -> np.ndarray:
    """Tell for each label whether it is a value of attention."""
    values = np.zeros(trace_log.total, dtype=bool)
    for role, labels in trace_log.roles:
        if role == "v":
            values[labels.numpy()] = True
    return values


def _sides(port: Port, labels: np.ndarray, is_key: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Tell on which side of the group a port stands; the rows of keys read what the rows of queries write.

    Units of a family have as many keys as each other at each port, so that both parts are rectangular.
    """
    if port.kind == "read":
        return [("outgoing", labels)]
    if port.kind in NORMS:
        return [("norms", labels)]
    keys = is_key[labels]  # [units, repeat]
    sides = [("incoming", labels[~keys].reshape(len(labels), -1)), ("outgoing", labels[keys].reshape(len(labels), -1))]
    return [(side, part) for side, part in sides if part.size]


def _slot(trace_log: TraceLog, port: Port, labels: np.ndarray) -> Slot:
    axis = trace_log.axes[port.axis]
    index = torch.from_numpy(labels - axis.start)  # [units, repeat]
    kind = "weight" if port.kind == "read" else port.kind
    return Slot(axis.tensor, kind, UnitIndex(axis.view, axis.dims, index), port.location.module, port.neutral)


def _kind(flags: int, slots: Mapping[str, list[Slot]]) -> GroupKind:
    writers = sum(slot.where.index.shape[1] for slot in slots["incoming"] if slot.kind == "weight")
    if not slots["outgoing"] and flags & OUTPUT:
        return "output"
    if flags & PRODUCT:
        return "score"
    if flags & ADD and writers > 1:
        return "stream"
    return "gated" if flags & MUL and writers > 1 else "hidden"


def _name(slot: Slot, kind: GroupKind, values: bool, taken: dict[str, int]) -> str:
    """Name a group after the module that first writes it; parts of a fused tensor are told apart by their kind."""
    name = owner_of(slot.tensor)
    if slot.where.index.numel() < int(np.prod([slot.where.view[d] for d in slot.where.dims])):
        name += "[qk]" if kind == "score" else "[v]" if values else ""
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}#{taken[name]}"


def _through(trace_log: TraceLog, root: np.ndarray, group_of: np.ndarray) -> dict[int, set[int]]:
    """Return for each group the groups that its units pass into without a weight."""
    through: dict[int, set[int]] = defaultdict(set)
    for read, leaked in trace_log.reads:
        if leaked.numel():
            into = set(np.unique(group_of[root[read.numpy()]]).tolist()) - {-1}
            for number in np.unique(group_of[root[leaked.numpy()]]).tolist():
                through[number] |= into - {number}
    return through
