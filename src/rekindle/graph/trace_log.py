"""What the handlers write down while they walk through a computation: axes, ties, uses, leaks, gaps."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rekindle.graph.constants import Constant
from rekindle.graph.regions import MatrixView
from rekindle.graph.value import Value, distinct

_NO_LABELS = np.empty(0, dtype=np.int64)
_UNDONE = ("ties", "uses", "weights", "reads", "roles", "products", "passed", "gaps")
_PAIR = 1 << 31  # two labels fit into one int64
UseKind = Literal["weight", "bias", "scale", "shift", "mean", "var", "read"]
Role = Literal["q", "k", "v"]


@dataclass(frozen=True)
class Location:
    """Where in the model an operation stands."""

    module: str
    op: str

    def __str__(self) -> str:
        """Return "module.path: operation"."""
        return f"{self.module or '(model)'}: {self.op}"


@dataclass(frozen=True)
class Axis:
    """One unit axis of a tensor: dimensions `dims` of its view, and the first of its labels.

    A second copy of an axis is there for a second kind of units along the same dimensions: tokens and channels that
    were flattened into one.
    """

    tensor: str
    view: tuple[int, ...]
    dims: tuple[int, ...]
    start: int
    size: int
    copy: int = 0


@dataclass(frozen=True, eq=False)
class Use:
    """An operation that used labels of one axis in one way."""

    labels: Tensor
    kind: UseKind
    location: Location
    neutral: float | None


@dataclass(frozen=True, eq=False)
class WeightUse:
    """A weight that met an activation in a product."""

    tensor: str
    computed: bool  # computed from parameters in a way that has no inverse here
    view: MatrixView
    out_labels: Tensor
    in_labels: Tensor
    reads_units: bool
    embedding: bool
    location: Location
    gain: tuple[str, int] | None = None  # weight_norm: name of the gain, dimension


@dataclass
class TraceLog:
    """Everything that was found; `assemble` turns it into a graph."""

    axes: list[Axis] = field(default_factory=list)
    ties: list[tuple[Tensor, Tensor, str]] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    weights: list[WeightUse] = field(default_factory=list)
    reads: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # labels read, labels leaked into them
    roles: list[tuple[Role, Tensor]] = field(default_factory=list)  # labels [heads, units]
    products: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # left labels, right labels
    outputs: list[Tensor] = field(default_factory=list)
    seeps: list[Tensor] = field(default_factory=list)
    passed: list[Tensor] = field(default_factory=list)  # leaks that went on through a weight
    opaque_labels: list[tuple[Tensor, str]] = field(default_factory=list)
    not_understood: dict[str, None] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)  # parameter -> why it has no slot
    forbidden: set[str] = field(default_factory=set)  # parameters that can have no slot, for the reason given there
    gains: dict[str, tuple[str, int]] = field(default_factory=dict)  # weight_norm: direction -> (gain, dim)
    tape: list[tuple[Any, Any]] = field(default_factory=list)  # every handled call and its result, for `homogeneity`
    calls: list[Any] = field(default_factory=list)  # every call, also on raw inputs, for `lipschitz`
    gaps: list[Value] = field(default_factory=list)  # operands of what is not understood
    results: list[Value] = field(default_factory=list)  # what leaves the model
    constants: list[Constant] = field(default_factory=list)  # each knows whether its values were looked at
    total: int = 0
    _known: dict[tuple[str, tuple[int, ...], tuple[int, ...], int], Axis] = field(default_factory=dict)

    def axis(self, tensor: str, view: Sequence[int], dims: Sequence[int], copy: int = 0) -> Tensor:
        """Return the labels [size] of an axis; the same axis always has the same labels."""
        key = (tensor, tuple(view), tuple(dims), copy)
        if key not in self._known:
            size = math.prod(view[d] for d in dims)
            self._known[key] = Axis(key[0], key[1], key[2], self.total, size, copy)
            self.axes.append(self._known[key])
            self.total += size
        axis = self._known[key]
        return torch.arange(axis.start, axis.start + axis.size)

    def constant(self, live: Tensor, buffer: str = "") -> Constant:
        """Return a tensor that is no parameter, written down so that it is known whether its values were looked at."""
        self.constants.append(Constant(live, buffer))
        return self.constants[-1]

    def tie(self, a: Tensor, b: Tensor, tag: str) -> None:
        """Write down that elements at the same place belong to the same unit."""
        a, b = torch.broadcast_tensors(a, b)
        for d in range(a.ndim):
            if a.shape[d] > 1 and a.stride(d) == 0 and b.stride(d) == 0:
                a, b = a.narrow(d, 0, 1), b.narrow(d, 0, 1)
        pairs = torch.stack([a.reshape(-1), b.reshape(-1)])
        pairs = pairs[:, (pairs >= 0).all(dim=0) & (pairs[0] != pairs[1])]
        if pairs.numel():
            pairs = torch.unique(pairs[0] * _PAIR + pairs[1])
            self.ties.append((pairs // _PAIR, pairs % _PAIR, tag))

    def use(self, labels: Tensor, kind: UseKind, location: Location, neutral: float | None = None) -> None:
        """Write down that these labels of a parameter were used in one way."""
        self.uses.append(Use(distinct(labels), kind, location, neutral))

    def read(self, value: Value, labels: Sequence[Tensor]) -> None:
        """Write down that a weight reads units, with everything that has leaked into them.

        What has leaked into something that is not understood is read by weights that cannot be told.
        """
        self.reads.append((distinct(*labels), value.leaks))
        own = distinct(*value.unit_labels)
        for why in value.opaque:
            self.opaque_labels.append((value.leaks[~torch.isin(value.leaks, own)], why))

    def output(self, value: Value) -> None:
        """Write down that a value leaves the model: its own units, and what has leaked into it."""
        self.results.append(value)
        self.outputs.append(distinct(*value.unit_labels))
        self.seeps.append(value.leaks)
        self.no_axis(value, "leaves the model as it is, without a unit axis")

    def no_axis(self, value: Value, why: str) -> None:
        """Write down why the parameters behind a value got no slot here; a slot elsewhere makes it void."""
        for name in value.sources:
            self.reasons.setdefault(name, why)

    def axis_of(self, label: int) -> Axis:
        """Return the axis that a label belongs to."""
        return self.axes[bisect.bisect_right(self.axes, label, key=lambda axis: axis.start) - 1]

    def axes_of(self, labels: Tensor) -> list[tuple[Axis, int]]:
        """Return the axes that labels belong to, with the number of labels in each."""
        ordered = labels.unique()
        found, at = [], 0
        while at < len(ordered):
            axis = self.axis_of(int(ordered[at]))
            end = int(torch.searchsorted(ordered, axis.start + axis.size))
            found.append((axis, end - at))
            at = end
        return found

    def mark(self) -> dict[str, int]:
        """Return how much was written down so far, for `back_to`."""
        return {name: len(getattr(self, name)) for name in _UNDONE}

    def back_to(self, mark: dict[str, int]) -> None:
        """Forget what was written down since a mark: a rule that failed half way."""
        for name, length in mark.items():
            del getattr(self, name)[length:]

    def gap(self, operands: Sequence[Value], location: Location) -> Value:
        """Write down an operation that is not understood, and what it touches; the result is opaque."""
        why = str(location)
        self.not_understood.setdefault(why)
        self.gaps += operands
        for value in operands:
            if value.data:
                self.opaque_labels.append((distinct(*value.unit_labels, value.leaks), why))
            self.no_axis(value, f"enters {why}, which is not understood")
        return Value((), data=True, opaque=frozenset({why}))

    def components(self, chosen: Callable[[str], bool] = lambda tag: True) -> np.ndarray:
        """Return for each label the smallest label that it is tied to, over ties of the chosen tags."""
        ties = [(a.numpy(), b.numpy()) for a, b, tag in self.ties if chosen(tag)]
        left, right = ([_NO_LABELS, *(tie[side] for tie in ties)] for side in (0, 1))
        return connected(self.total, np.concatenate(left), np.concatenate(right))


def connected(total: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return for each of so many numbers the smallest one that it is connected to by pairs (a, b)."""
    parent = np.arange(total)
    while True:
        low = np.minimum(parent[a], parent[b])
        if (parent[a] == low).all() and (parent[b] == low).all():
            return parent
        np.minimum.at(parent, parent[a], low)
        np.minimum.at(parent, parent[b], low)
        while not (parent[parent] == parent).all():
            parent = parent[parent]


def merge_leaks(*values: Value) -> Tensor:
    """Return everything that has leaked into any of the values."""
    return distinct(*(value.leaks for value in values))


def merge_opaque(*values: Value) -> frozenset[str]:
    """Return everything that was not understood on the way to any of the values."""
    return frozenset().union(*(value.opaque for value in values))


def merge_sources(*values: Value) -> frozenset[str]:
    """Return the parameters that values are computed from, if they are made of nothing else."""
    return frozenset() if any(value.data for value in values) else frozenset().union(*(v.sources for v in values))
