"""By what each element of a value is multiplied when the parameters are.

A *variable* is the logarithm of the factor of one block of one tensor. *Exponents* are a sum of variables with
coefficients; each such sum has a number, its *label*, and a tensor of labels (int64, as in `value`) says for each
element of a value by what it is multiplied. Where two elements must stay in proportion their sums are equal: an
*equation*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rekindle.graph.value import compact, shrink

NEUTRAL = -1  # label of elements that are zero, or infinite: in proportion to everything
UNCHANGED = 0  # label of the empty sum: raw inputs, constants, what comes out of a sigmoid
LARGE = 1 << 40
LONG = 4  # variables in a sum; a longer one gets a variable of its own, or sums would grow with every layer

Exponents = dict[int, float]


def constant(label: int, shape: Sequence[int]) -> Tensor:
    """Return a tensor of one label."""
    return torch.tensor(label).expand(tuple(shape))


@dataclass
class ScaleExponents:
    """The sums of exponents met so far, and the equations between them."""

    sums: list[Exponents] = field(default_factory=lambda: [{}])
    variables: int = 0
    equations: list[Exponents] = field(default_factory=list)
    _labels: dict[tuple[tuple[int, float], ...], int] = field(default_factory=lambda: {(): UNCHANGED})
    _equal: set[tuple[int, int]] = field(default_factory=set)
    _lengths: Tensor = field(default_factory=lambda: torch.zeros(64, dtype=torch.long))  # of sums; grows by doubling

    def variable(self) -> int:
        """Return the label of a new variable."""
        self.variables += 1
        return self._label({self.variables - 1: 1.0})

    def _label(self, exponents: Exponents) -> int:
        key = tuple(sorted(exponents.items()))
        if key not in self._labels:
            self._labels[key] = self._short(exponents) if len(exponents) > LONG else self._new(exponents)
        return self._labels[key]

    def _short(self, exponents: Exponents) -> int:
        """Return the label of a new variable that is equal to a long sum."""
        label = self.variable()
        self.equations.append(added([(exponents, 1.0), (self.sums[label], -1.0)]))
        return label

    def _new(self, exponents: Exponents) -> int:
        label = len(self.sums)
        self.sums.append(exponents)
        if label >= len(self._lengths):
            self._lengths = torch.cat([self._lengths, torch.zeros_like(self._lengths)])
        self._lengths[label] = len(exponents)
        return label

    def sum(self, labels: Sequence[int], powers: Sequence[float]) -> int:
        """Return the label of a sum of sums; zero times anything is zero."""
        if NEUTRAL in labels:
            return NEUTRAL
        return self._label(added((self.sums[label], power) for label, power in zip(labels, powers, strict=True)))

    def product(self, fields: Sequence[Tensor], powers: Sequence[float]) -> Tensor:
        """Return the labels of a product of powers, element by element."""
        cores = torch.broadcast_tensors(*(compact(shrink(each)) for each in fields))
        shape = torch.broadcast_shapes(*(each.shape for each in fields))
        rows = torch.stack([core.reshape(-1) for core in cores])
        met, places = rows.unique(dim=1, return_inverse=True)
        labels = torch.tensor([self.sum(column, powers) for column in met.t().tolist()])
        return labels[places].reshape(cores[0].shape).expand(shape)

    def tie(self, *fields: Tensor) -> Tensor:
        """Write down that elements at the same place stay in proportion; return the labels of them all."""
        shape = torch.broadcast_shapes(*(each.shape for each in fields))
        joined, *others = (compact(shrink(each)) for each in fields)
        for other in others:
            a, b = torch.broadcast_tensors(joined, other)
            for pair in torch.stack([a.reshape(-1), b.reshape(-1)]).unique(dim=1).t().tolist():
                self._tie(*pair)
            joined = self._shorter(torch.stack([a, b])).amin(0) % LARGE - 1
        return joined.expand(shape)

    def settle(self, labels: Tensor, dims: Iterable[int]) -> Tensor:
        """Write down that all elements along dimensions stay in proportion; return the labels, of size one there."""
        core = compact(shrink(labels))
        wide = [d for d in dims if core.shape[d] > 1]
        one = self._shorter(core).amin(wide, keepdim=True) % LARGE - 1 if wide else core
        if wide:
            self.tie(core, one)
        keep = {d % labels.ndim for d in dims}
        return one.expand([1 if d in keep else size for d, size in enumerate(labels.shape)])

    def fix(self, labels: Tensor) -> None:
        """Write down that elements stay as they are."""
        self.tie(labels, constant(UNCHANGED, labels.shape))

    def is_unchanged(self, labels: Tensor) -> bool:
        """Tell whether nothing can change these elements."""
        return bool((compact(labels) <= UNCHANGED).all())

    def _tie(self, a: int, b: int) -> None:
        if a == b or NEUTRAL in (a, b) or (a, b) in self._equal:
            return
        self._equal.update(((a, b), (b, a)))
        self.equations.append(added([(self.sums[a], 1.0), (self.sums[b], -1.0)]))

    def _shorter(self, labels: Tensor) -> Tensor:
        """Return a number for each label by which the one with the shortest sum is least, and NEUTRAL greatest."""
        lengths = torch.where(labels == NEUTRAL, LARGE >> 20, self._lengths[labels])
        return lengths * LARGE + labels + 1


def added(terms: Iterable[tuple[Exponents, float]]) -> Exponents:
    """Return a sum of sums with factors, without what cancels.

    Example:
        >>> added([({0: 1.0, 1: 2.0}, 1.0), ({1: 1.0}, -2.0)])
        {0: 1.0}
    """
    total: Exponents = {}
    for exponents, factor in terms:
        for variable, power in exponents.items():
            total[variable] = total.get(variable, 0.0) + factor * power
    return {variable: power for variable, power in total.items() if abs(power) > 1e-9}
