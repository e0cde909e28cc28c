"""What the tracer knows about a value: for each element, which units it belongs to.

A *label* is the number of one unit port: one position along one axis of one parameter. A *field* is an int64 tensor
of labels that is broadcast over the value's shape: element [i, j, ...] belongs to the unit of its label (-1: to none).
A value may have several fields (a token-mixing layer has units along tokens and along channels). Because a field is a
tensor, every rearrangement of the value - view, permute, split, cat, flatten, channel shuffle - is the same call on
its fields, and no layout is special.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from rekindle.graph.constants import Constant

NONE = -1  # label of elements without a unit


@dataclass(frozen=True, eq=False)
class Product:
    """Marks the product of two activations over unit axes: attention scores, before or after their softmax."""

    left: tuple[Tensor, ...]  # labels [head, unit] of each contracted field: queries
    right: tuple[Tensor, ...]  # keys
    softmaxed: bool = False


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the traced computation.

    Args:
        shape: Its shape.
        unit_labels: Labels, each expanded to the shape.
        data: Whether it depends on the model's input (an activation) or only on parameters and constants.
        param: Name of the parameter or buffer when it is exactly that tensor or a view of it.
        buffer: Whether `param` names a buffer.
        base: For a parameter seen whole up to a permutation: the stored dimension behind each of its dimensions.
        along: For values of parameters alone: the dimension that each field runs along, which tells where a field of
            a single unit belongs.
        leaks: Labels of units that influence every element without owning it (normalization, means, gates).
        opaque: What was not understood on the way here.
        product: Set on attention scores.
        sources: For values of parameters alone: the parameters that they are computed from.
        constant: The tensor itself, where it is a buffer or a constant of the model.
    """

    shape: tuple[int, ...]
    unit_labels: tuple[Tensor, ...] = ()
    data: bool = False
    param: str | None = None
    buffer: bool = False
    base: tuple[int, ...] | None = None
    along: tuple[int, ...] | None = None
    leaks: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    opaque: frozenset[str] = frozenset()
    product: Product | None = None
    sources: frozenset[str] = frozenset()
    constant: Constant | None = None

    @property
    def const(self) -> Tensor | None:
        """The values of a buffer or constant. To ask is to look: the trace is then right for these values only."""
        return None if self.constant is None else self.constant.read()

    @property
    def is_parameter(self) -> bool:
        """Whether this is a parameter or a view of one."""
        return self.param is not None and not self.buffer

    @property
    def relevant(self) -> bool:
        """Whether units or parameters are involved at all; masks, positions and raw inputs are not."""
        marked = self.leaks.numel() > 0 or bool(self.opaque) or self.product is not None
        return bool(self.unit_labels) or marked or bool(self.sources)

    def without_labels(self) -> Value:
        """Return the same value with no unit axis."""
        return replace(self, unit_labels=(), base=None, along=None, product=None)

    def labels_over(self, dim: int) -> Tensor | None:
        """Return the field that runs along a dimension."""
        dim %= len(self.shape)
        for position, labels in enumerate(self.unit_labels):
            if dim in self.dims(position):
                return labels
        return None

    def dims(self, position: int) -> frozenset[int]:
        """Return the dimensions along which a field varies, or runs where it is a single unit."""
        found = varying(self.unit_labels[position])
        if not found and self.along is not None:
            return frozenset({self.along[position]})
        return found


def varying(labels: Tensor) -> frozenset[int]:
    """Return the dimensions along which labels differ."""
    core = compact(labels)
    return frozenset(
        d for d in range(core.ndim) if core.shape[d] > 1 and not bool((core == core.narrow(d, 0, 1)).all())
    )


def compact(labels: Tensor) -> Tensor:
    """Return labels with broadcast dimensions at size one, so that work on them stays small."""
    for d in range(labels.ndim):
        if labels.shape[d] > 1 and labels.stride(d) == 0:
            labels = labels.narrow(d, 0, 1)
    return labels


def shrink(labels: Tensor) -> Tensor:
    """Return labels expanded over every dimension along which they do not vary."""
    keep = varying(labels)
    core = labels
    for d in range(labels.ndim):
        if d not in keep and core.shape[d] > 1:
            core = core.narrow(d, 0, 1)
    return core.expand(labels.shape)


def flat(labels: Tensor | None) -> Tensor:
    """Return labels that run along one axis as a vector, whatever they are broadcast over."""
    assert labels is not None
    return compact(shrink(labels)).reshape(-1)


def partly(fields: Iterable[Tensor]) -> bool:
    """Tell whether some elements belong to no unit: what has leaked into them is in no unit's place."""
    return any(bool((compact(labels) == NONE).any()) for labels in fields)


def distinct(*labels: Tensor) -> Tensor:
    """Return the labels that occur, each once, without NONE."""
    flat = [compact(each).reshape(-1) for each in labels]
    if not flat:
        return torch.empty(0, dtype=torch.long)
    found = torch.cat(flat).unique()
    return found[found != NONE]
