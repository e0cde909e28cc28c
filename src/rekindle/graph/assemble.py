"""From what the handlers wrote down to the unit graph: units are tied ports, groups are units with equal ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from rekindle.graph.groups import Group, GroupKind, Slot, owner_of
from rekindle.graph.initializers import Initializer
from rekindle.graph.lipschitz import steps_of
from rekindle.graph.regions import UnitIndex
from rekindle.graph.scaling import homogeneity, rule
from rekindle.graph.scaling.walk import Curve
from rekindle.graph.trace_log import Location, TraceLog, UseKind, WeightUse
from rekindle.graph.unit_graph import OUTSIDE, UnitGraph
from rekindle.graph.weight import Weight, WeightRole
from rekindle.kernels.initializers import Constant

INCOMING = ("weight", "bias")
NORMS = ("scale", "shift", "mean", "var")


@dataclass(frozen=True)
class Port:
    """One way in which one axis is used: the first location stands for all."""

    axis: int
    kind: UseKind
    location: Location
    neutral: float | None


@dataclass
class Unit:
    """A set of tied labels while it is being described."""

    ports: dict[int, list[int]] = field(default_factory=dict)  # port number -> labels
    flags: set[str] = field(default_factory=set)


def assemble(
    trace_log: TraceLog,
    parameters: Mapping[str, tuple[int, ...]],
    aliases: Mapping[str, tuple[str, ...]],
    initializers: Mapping[str, Initializer],
    gains: Mapping[str, tuple[str, int]],
) -> UnitGraph:
    """Build the graph."""
    root = trace_log.components()
    apart = trace_log.components(lambda tag: tag != "product")  # queries and keys are tied by their product alone
    ports, units = _units(trace_log, root)
    _flags(trace_log, root, units)
    _opaque_reasons(trace_log)
    families = _families(ports, units)
    groups, group_of = _groups(trace_log, apart, ports, units, families)
    through = _through(trace_log, root, group_of)
    groups = [replace(g, through=tuple(groups[n].name for n in sorted(through[i]))) for i, g in enumerate(groups)]
    constraints, curves = homogeneity(trace_log, groups, rule)
    groups = _non_homogeneous(groups, curves, root, group_of)
    weights = _weights(trace_log, root, apart, parameters, {r for r, unit in units.items() if "output" in unit.flags})
    covered = {slot.tensor for g in groups for slot in (*g.incoming, *g.norms, *g.outgoing)}
    neutral = {slot.tensor: Constant(slot.neutral) for g in groups for slot in g.norms if slot.neutral is not None}
    return UnitGraph(
        weights=weights,
        groups=tuple(groups),
        uncovered={name: trace_log.reasons.get(name, OUTSIDE) for name in parameters if name not in covered},
        not_understood=tuple(trace_log.not_understood),
        aliases=aliases,
        initializers={**neutral, **initializers},
        gains=gains,
        parameters=parameters,
        scale_constraints=constraints,
        lipschitz=steps_of(trace_log),
    )


def _non_homogeneous(
    groups: list[Group], curves: list[Curve], root: np.ndarray, group_of: Mapping[int, int]
) -> list[Group]:
    """Say of each group what is not homogeneous on its way."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    for labels, location in curves:
        for r in np.unique(root[labels.numpy()]).tolist():
            if r in group_of:
                found[group_of[r]].setdefault(location)
    return [replace(group, non_homogeneous=tuple(found[n])) for n, group in enumerate(groups)]


def _units(trace_log: TraceLog, root: np.ndarray) -> tuple[list[Port], dict[int, Unit]]:
    """Collect for each unit the ports that it has, in order of first use."""
    numbers: dict[tuple[int, UseKind], int] = {}
    ports: list[Port] = []
    units: dict[int, Unit] = {}
    starts = [axis.start for axis in trace_log.axes]
    composed = _composed(trace_log)
    for use in trace_log.uses:
        labels = composed(use.labels.numpy())
        if not len(labels):
            continue
        axes = np.searchsorted(starts, labels, side="right") - 1
        for axis in np.unique(axes):
            key = (int(axis), use.kind)
            if key not in numbers:
                numbers[key] = len(ports)
                ports.append(Port(int(axis), use.kind, use.location, use.neutral))
            number = numbers[key]
            for label in labels[axes == axis].tolist():
                mine = units.setdefault(int(root[label]), Unit()).ports.setdefault(number, [])
                if label not in mine[-1:]:
                    mine.append(label)
    for unit in units.values():
        unit.ports = {n: sorted(set(labels)) for n, labels in unit.ports.items()}
    return ports, units


def _composed(trace_log: TraceLog) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that adds to labels those of other parameters that were composed into the same weight."""
    together = trace_log.components(lambda tag: tag == "composed")
    pairs = [each.numpy() for tie in trace_log.ties if tie[2] == "composed" for each in tie[:2]]
    involved = np.unique(np.concatenate(pairs)) if pairs else np.empty(0, dtype=int)

    def closure(labels: np.ndarray) -> np.ndarray:
        if not len(involved):
            return labels
        more = involved[np.isin(together[involved], together[labels])] if len(labels) else involved[:0]
        return np.union1d(labels, more)

    return closure


def _opaque_reasons(trace_log: TraceLog) -> None:
    """Say of the parameters whose units enter something unknown that they do."""
    for labels, why in trace_log.opaque_labels:
        for name in {trace_log.axis_of(label).tensor for label in labels.tolist()}:
            trace_log.reasons.setdefault(name, f"its units enter {why}, which is not understood")


def _flags(trace_log: TraceLog, root: np.ndarray, units: dict[int, Unit]) -> None:
    """Mark units that are summed, gated, multiplied, that leave the model or meet what is not understood."""

    def mark(labels: Tensor, flag: str) -> None:
        for r in np.unique(root[labels.numpy()]).tolist() if labels.numel() else ():
            if r in units:
                units[r].flags.add(flag)

    for a, _, tag in trace_log.ties:
        if tag in ("add", "mul"):
            mark(a, tag)
    for left, right in trace_log.products:
        mark(left, "product")
        mark(right, "product")
    for labels in trace_log.outputs:
        mark(labels, "output")
    for labels in trace_log.seeps:
        mark(labels, "seeps")
    for labels in trace_log.passed:
        mark(labels, "passed")
    for unit in units.values():
        if {"seeps"} == unit.flags & {"seeps", "passed"}:  # spread over the outputs, with no weight between
            unit.flags.add("output")
    for labels, _ in trace_log.opaque_labels:
        mark(labels, "opaque")


def _families(ports: list[Port], units: dict[int, Unit]) -> list[list[int]]:
    """Put units with the same ports (and as many labels at each) together, in order of first use."""
    families: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for r in sorted(units):
        unit = units[r]
        signature = tuple((number, len(unit.ports[number])) for number in sorted(unit.ports))
        families[(signature, frozenset(unit.flags))].append(r)
    written = [
        (family, min((n for n in units[family[0]].ports if ports[n].kind in INCOMING), default=None))
        for family in families.values()
        if "opaque" not in units[family[0]].flags
    ]
    return [family for family, first in sorted((w for w in written if w[1] is not None), key=lambda w: (w[1], w[0][0]))]


def _groups(
    trace_log: TraceLog, apart: np.ndarray, ports: list[Port], units: dict[int, Unit], families: list[list[int]]
) -> tuple[list[Group], dict[int, int]]:
    keys = {int(r) for _, right in trace_log.products for r in apart[right.numpy()].tolist()}
    queries = {int(r) for left, _ in trace_log.products for r in apart[left.numpy()].tolist()}
    groups: list[Group] = []
    group_of: dict[int, int] = {}
    taken: dict[str, int] = {}
    for family in families:
        first = units[family[0]]
        slots: dict[str, list[Slot]] = {"incoming": [], "norms": [], "outgoing": []}
        for number in sorted(first.ports):
            port = ports[number]
            for side, labels in _sides(port, [units[r].ports[number] for r in family], apart, keys - queries):
                slots[side].append(_slot(trace_log, port, labels))
        if not slots["incoming"]:
            continue
        kind = _kind(first, slots)
        name = _name(slots["incoming"][0], trace_log, kind, taken)
        group_of.update({r: len(groups) for r in family})
        groups.append(
            Group(
                name=name,
                size=len(family),
                kind=kind,
                incoming=tuple(slots["incoming"]),
                norms=tuple(slots["norms"]),
                outgoing=tuple(slots["outgoing"]),
                leaves=bool(first.flags & {"output", "seeps"}),
            )
        )
    return groups, group_of


def _sides(port: Port, labels: list[list[int]], apart: np.ndarray, keys: set[int]) -> list[tuple[str, list[list[int]]]]:
    """Tell on which side of the group a port stands; the rows of keys read what the rows of queries write."""
    if port.kind == "read":
        return [("outgoing", labels)]
    if port.kind in NORMS:
        return [("norms", labels)]
    queries = [[label for label in unit if int(apart[label]) not in keys] for unit in labels]
    key_rows = [[label for label in unit if int(apart[label]) in keys] for unit in labels]
    sides = [("incoming", queries), ("outgoing", key_rows)]
    return [(side, part) for side, part in sides if all(part)]


def _slot(trace_log: TraceLog, port: Port, labels: list[list[int]]) -> Slot:
    axis = trace_log.axes[port.axis]
    index = torch.tensor(labels) - axis.start  # [units, repeat]
    kind = "weight" if port.kind == "read" else port.kind
    return Slot(axis.tensor, kind, UnitIndex(axis.view, axis.dims, index), port.location.module, port.neutral)


def _kind(unit: Unit, slots: Mapping[str, list[Slot]]) -> GroupKind:
    writers = sum(slot.where.index.shape[1] for slot in slots["incoming"] if slot.kind == "weight")
    if not slots["outgoing"] and "output" in unit.flags:
        return "output"
    if "product" in unit.flags:
        return "score"
    if "add" in unit.flags and writers > 1:
        return "stream"
    return "gated" if "mul" in unit.flags and writers > 1 else "hidden"


def _name(slot: Slot, trace_log: TraceLog, kind: GroupKind, taken: dict[str, int]) -> str:
    """Name a group after the module that first writes it; parts of a fused tensor are told apart by their kind."""
    name = owner_of(slot.tensor)
    if slot.where.index.numel() < _axis_size(slot):
        name += "[qk]" if kind == "score" else "[v]" if _has_role(trace_log, slot, "v") else ""
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}#{taken[name]}"


def _axis_size(slot: Slot) -> int:
    return int(np.prod([slot.where.view[d] for d in slot.where.dims]))


def _has_role(trace_log: TraceLog, slot: Slot, role: str) -> bool:
    axis = next(
        a for a in trace_log.axes if (a.tensor, a.view, a.dims) == (slot.tensor, slot.where.view, slot.where.dims)
    )
    label = axis.start + int(slot.where.index[0, 0])
    return any(r == role and bool((labels == label).any()) for r, labels in trace_log.roles)


def _through(trace_log: TraceLog, root: np.ndarray, group_of: Mapping[int, int]) -> dict[int, set[int]]:
    """Return for each group the groups that its units pass into without a weight."""
    through: dict[int, set[int]] = defaultdict(set)
    for read, leaked in trace_log.reads:
        if not leaked.numel():
            continue
        into = {group_of[r] for r in np.unique(root[read.numpy()]).tolist() if r in group_of}
        for r in np.unique(root[leaked.numpy()]).tolist():
            if r in group_of:
                through[group_of[r]] |= into - {group_of[r]}
    return through


def _weights(
    trace_log: TraceLog,
    root: np.ndarray,
    apart: np.ndarray,
    parameters: Mapping[str, tuple[int, ...]],
    outputs: set[int],
) -> tuple[Weight, ...]:
    """Turn the weights that were met into the graph's weights, one for each role within a tensor."""
    role_of: dict[int, tuple[str, int]] = {}  # what is tied to a query without a product is a query
    for letter, labels in trace_log.roles:
        for head, row in enumerate(apart[labels.numpy()].tolist()):
            for label in row:
                role_of.setdefault(label, (letter, head))
    read_roots = {int(r) for labels, _ in trace_log.reads for r in np.unique(root[labels.numpy()]).tolist()}
    weights: dict[str, Weight] = {}
    for use in trace_log.weights:
        for weight in _parts(use, role_of, root, apart, outputs - read_roots, parameters):
            known = weights.get(weight.name)
            if known is None:
                weights[weight.name] = weight
            elif known.role != weight.role:
                role: WeightRole = "embedding" if "embedding" in (known.role, weight.role) else known.role
                weights[weight.name] = replace(known, role=role, tied=True)
    return tuple(weights.values())


def _parts(
    use: WeightUse,
    role_of: Mapping[int, tuple[str, int]],
    root: np.ndarray,
    apart: np.ndarray,
    leaving: set[int],
    parameters: Mapping[str, tuple[int, ...]],
) -> list[Weight]:
    rows: dict[str, list[int]] = defaultdict(list)
    labels = apart[use.out_labels.numpy()].tolist()
    for position, label in enumerate(labels):
        rows[role_of[label][0] if label in role_of else ""].append(position)
    parts = []
    for attention, positions in rows.items():
        role = attention or _plain_role(use, role_of, root, apart, leaving)
        heads = None
        if attention:
            positions.sort(key=lambda p: (role_of[labels[p]][1], p))
            heads = len({role_of[labels[p]][1] for p in positions})
        parts.append(_part(use, role, positions, heads, len(rows) > 1, parameters))  # type: ignore[arg-type]
    return parts


def _part(
    use: WeightUse,
    role: WeightRole,
    positions: list[int],
    heads: int | None,
    split: bool,
    parameters: Mapping[str, tuple[int, ...]],
) -> Weight:
    tensor = str(use.tensor)
    view = use.view
    if positions != list(range(len(use.out_labels))):
        chosen = torch.tensor(positions)
        view = replace(view, rows=chosen if view.rows is None else view.rows[chosen])
    name = f"{tensor}[{role}]" if split or view.rows is not None else tensor
    return Weight(
        name,
        tensor,
        view,
        role,
        parameters[tensor],
        heads,
        gain=use.gain,
        computed=use.computed,
        module=use.location.module,
    )


def _plain_role(
    use: WeightUse, role_of: Mapping[int, tuple[str, int]], root: np.ndarray, apart: np.ndarray, leaving: set[int]
) -> WeightRole:
    if use.embedding:
        return "embedding"
    if all(r in leaving for r in root[use.out_labels.numpy()].tolist()):
        return "head"
    if use.reads_units and all(role_of.get(r, ("", 0))[0] == "v" for r in apart[use.in_labels.numpy()].tolist()):
        return "o"
    return "hidden" if use.reads_units else "input"
