"""From labels to families of units: which ports each unit has, and which units have the same ones.

A *port* is one way in which one axis of one tensor is used: "as a weight, along its output". A *unit* is a set of
labels that were tied together, and it stands in as many ports as its labels do. A *family* are units that stand in the
same ports, with as many labels in each. Models have hundreds of thousands of labels: everything here is arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from rekindle.graph.trace_log import Location, TraceLog, UseKind

ADD, MUL, PRODUCT, OUTPUT, SEEPS, PASSED, OPAQUE = (1 << n for n in range(7))  # what happens to a unit on its way
INCOMING = ("weight", "bias")


@dataclass(frozen=True)
class Port:
    """One way in which one axis is used: the first location stands for all."""

    axis: int
    kind: UseKind
    location: Location
    neutral: float | None


@dataclass(frozen=True, eq=False)
class Family:
    """Units with the same ports.

    Args:
        roots: The smallest label of each unit, ascending.
        ports: Numbers of the ports that they have, ascending.
        labels: For each port the labels [units, repeat].
        flags: What happens to them on their way.
    """

    roots: np.ndarray
    ports: tuple[int, ...]
    labels: tuple[np.ndarray, ...]
    flags: int


def families_of(
    trace_log: TraceLog, root: np.ndarray, flags: np.ndarray, is_key: np.ndarray
) -> tuple[list[Port], list[Family]]:
    """Return all ports, and the families that something writes, in order of their first writer.

    Args:
        trace_log: What the rules wrote down.
        root: For each label the smallest one that it is tied to.
        flags: For each root what happens to its unit.
        is_key: For each label whether it is on the side of keys in attention; such labels count apart.
    """
    ports, port, label = _entries(trace_log)
    unit = root[label]
    order = np.argsort(unit, kind="stable")  # rows were sorted by port and label before
    port, label, unit = port[order], label[order], unit[order]
    if not len(label):
        return ports, []
    unit_start = np.flatnonzero(np.r_[True, unit[1:] != unit[:-1]])
    run_start = np.flatnonzero(np.r_[True, (unit[1:] != unit[:-1]) | (port[1:] != port[:-1])])
    counts = np.diff(np.r_[run_start, len(label)])
    keys = np.add.reduceat(is_key[label].astype(np.int64), run_start)
    kind = _number(_number(port[run_start] * (counts.max() + 1) + counts) * (keys.max() + 1) + keys)
    first_run = np.searchsorted(run_start, unit_start)
    alike = _alike(flags[unit[unit_start]], kind, first_run)
    families = []
    for members in _by_value(alike):
        runs = slice(first_run[members[0]], _end(first_run, members[0], len(run_start)))
        numbers, sizes = port[run_start[runs]], counts[runs]
        rows = unit_start[members][:, None] + np.arange(sizes.sum())  # [units, labels of a unit]
        labels = np.split(label[rows], np.cumsum(sizes)[:-1], axis=1)
        roots = unit[unit_start[members]]
        families.append(Family(roots, tuple(numbers.tolist()), tuple(labels), int(flags[roots[0]])))
    written = [(first, family) for family in families if (first := _first_writer(family, ports)) is not None]
    written = [each for each in written if not each[1].flags & OPAQUE]
    return ports, [family for _, family in sorted(written, key=lambda each: (each[0], each[1].roots[0]))]


def flags_of(trace_log: TraceLog, root: np.ndarray) -> np.ndarray:
    """Return for each root what happens to its unit: summed, gated, multiplied, leaving, meeting the unknown."""
    flags = np.zeros(trace_log.total, dtype=np.int64)

    def mark(labels: Tensor, flag: int) -> None:
        flags[root[labels.numpy()]] |= flag

    for a, _, tag in trace_log.ties:
        if tag in ("add", "mul"):
            mark(a, ADD if tag == "add" else MUL)
    for left, right in trace_log.products:
        mark(left, PRODUCT)
        mark(right, PRODUCT)
    marks = ((OUTPUT, trace_log.outputs), (SEEPS, trace_log.seeps), (PASSED, trace_log.passed))
    for flag, found in (*marks, (OPAQUE, [labels for labels, _ in trace_log.opaque_labels])):
        for labels in found:
            mark(labels, flag)
    flags[(flags & (SEEPS | PASSED)) == SEEPS] |= OUTPUT  # spread over the outputs, with no weight between
    return flags


def _entries(trace_log: TraceLog) -> tuple[list[Port], np.ndarray, np.ndarray]:
    """Return the ports in order of first use, and rows of port and label, sorted, each once."""
    numbers: dict[tuple[int, UseKind], int] = {}
    ports: list[Port] = []
    found: list[tuple[int, np.ndarray]] = []
    starts = np.array([axis.start for axis in trace_log.axes])
    composed = _composed(trace_log)
    for use in trace_log.uses:
        labels = composed(use.labels.numpy())
        for axis, part in _by_axis(labels, starts):
            key = (axis, use.kind)
            if key not in numbers:
                numbers[key] = len(ports)
                ports.append(Port(axis, use.kind, use.location, use.neutral))
            found.append((numbers[key], part))
    if not found:
        return ports, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    port = np.repeat([number for number, _ in found], [len(part) for _, part in found])
    rows = np.unique(port * trace_log.total + np.concatenate([part for _, part in found]))
    return ports, rows // trace_log.total, rows % trace_log.total


def _by_axis(labels: np.ndarray, starts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Part sorted labels by the axis that they belong to."""
    if not len(labels):
        return
    axes = np.searchsorted(starts, labels, side="right") - 1
    for part in np.split(np.arange(len(labels)), np.flatnonzero(axes[1:] != axes[:-1]) + 1):
        yield int(axes[part[0]]), labels[part]


def _composed(trace_log: TraceLog) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that adds to labels those of other parameters that were composed into the same weight."""
    pairs = [each.numpy() for tie in trace_log.ties if tie[2] == "composed" for each in tie[:2]]
    if not pairs:
        return lambda labels: labels
    together = trace_log.components(lambda tag: tag == "composed")
    involved = np.unique(np.concatenate(pairs))

    def closure(labels: np.ndarray) -> np.ndarray:
        more = involved[np.isin(together[involved], together[labels])] if len(labels) else involved[:0]
        return np.union1d(labels, more)

    return closure


def _number(values: np.ndarray) -> np.ndarray:
    """Number values by their order: small numbers can be put together into one without overflow."""
    return np.unique(values, return_inverse=True)[1]


def _alike(flags: np.ndarray, kind: np.ndarray, first_run: np.ndarray) -> np.ndarray:
    """Return a number for each unit that is the same for units with the same flags and the same kinds of runs.

    Run by run the number is refined by the next one, so that the work is that of looking at each run once.
    """
    alike = _number(flags)
    runs = np.diff(np.r_[first_run, len(kind)])
    fresh = alike.max() + 1
    kinds = kind.max() + 1
    units = np.arange(len(first_run))
    for n in range(int(runs.max())):
        units = units[runs[units] > n]
        refined = _number(alike[units] * kinds + kind[first_run[units] + n])
        alike[units] = fresh + refined
        fresh += refined.max() + 1
        if fresh > 1 << 40:  # numbers grow with depth: begin again from the small ones that are in use
            alike = _number(alike)
            fresh = alike.max() + 1
    return alike


def _by_value(numbers: np.ndarray) -> list[np.ndarray]:
    """Return for each number that occurs where it stands, ascending."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def _end(starts: np.ndarray, at: int, total: int) -> int:
    return int(starts[at + 1]) if at + 1 < len(starts) else total


def _first_writer(family: Family, ports: list[Port]) -> int | None:
    return next((number for number in family.ports if ports[number].kind in INCOMING), None)
