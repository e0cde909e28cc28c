"""The only writer of parameters, buffers and optimizer state.

A `Journal` notes the way back before each write, so that whatever interrupts a treatment can be taken back. Per-step
methods, which act on every step, write fused and keep nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from rekindle.edits.update import Clamp, Multiply, Update

_ABSENT = object()
Averaged = Sequence[tuple[int, Tensor, float]]


class Journal:
    """Writes with the way back.

    Every way back is noted before its write, and does no harm if the write did not happen: an exception or an interrupt
    between any two lines can be rolled back.
    """

    def __init__(self) -> None:
        self._back: list[Callable[[], Any]] = []
        self._written: list[Tensor] = []
        self._entries: list[tuple[MutableMapping[Any, Any], Any]] = []
        self._left: dict[Any, tuple[Any, Any]] = {}

    @torch.no_grad()
    def put(self, target: Tensor, new: Tensor) -> None:
        """Write new values into a tensor, in place."""
        self.note(partial(_copy, target, target.detach().clone()))
        self._written.append(target)
        target.copy_(new)

    def set(self, mapping: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Set an entry of a dict, as of a module's children or an optimizer's state."""
        self.note(partial(_restore, mapping, key, mapping.get(key, _ABSENT)))
        self._entries.append((mapping, key))
        mapping[key] = value

    def drop(self, mapping: MutableMapping[Any, Any], key: Any) -> None:
        """Take an entry out of a dict; the value itself is not touched."""
        if key in mapping:
            self.note(partial(_restore, mapping, key, mapping[key]))
            self._entries.append((mapping, key))
            del mapping[key]

    def note(self, back: Callable[[], Any]) -> None:
        """Note a way back, to be called before the step that it takes back."""
        self._back.append(back)

    def watch(self, tensor: Tensor) -> None:
        """Count a tensor among those that must not have changed when the treatment is undone."""
        self._written.append(tensor)

    def seal(self) -> None:
        """Remember what tensors and entries are like now that everything is written."""
        self._left = {id(tensor): (tensor, digest(tensor)) for tensor in self._written}
        for mapping, key in self._entries:
            self._left[id(mapping), id(key)] = ((mapping, key), mapping.get(key, _ABSENT))

    def left(self) -> Left:
        """Return what was remembered, to be compared by `count_changed`."""
        return self._left

    def roll_back(self) -> None:
        """Take everything back, last write first."""
        while self._back:
            self._back[-1]()
            self._back.pop()
        self._written, self._entries, self._left = [], [], {}


Left = Mapping[Any, tuple[Any, Any]]
"""A tensor and its digest, or a dict with a key and the value that stood there."""


def count_changed(left: Left) -> int:
    """Return how many of the tensors and entries are not as they were left."""
    return sum(_is_other(what, then) for what, then in left.values())


def _is_other(what: Any, then: Any) -> bool:
    if isinstance(what, Tensor):
        return bool(digest(what) != then)
    mapping, key = what
    return mapping.get(key, _ABSENT) is not then


@torch.no_grad()
def digest(tensor: Tensor) -> Tensor:
    """Return a number that changes with the values of a tensor, on its device and without waiting for it.

    Torch counts writes (`_version`), but not those of fused optimizers, foreign kernels and `.data`.

    Example:
        >>> one = torch.ones(3)
        >>> before = digest(one)
        >>> _ = one.data.add_(1e-6)
        >>> bool(digest(one) == before)
        False
    """
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    return flat.view(_SAME_SIZE[flat.element_size()]).sum(dtype=torch.int64)


_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # bits as whole numbers


@torch.no_grad()
def _copy(target: Tensor, old: Tensor) -> None:
    target.copy_(old)


def _restore(mapping: MutableMapping[Any, Any], key: Any, value: Any) -> None:
    if value is _ABSENT:
        mapping.pop(key, None)
    else:
        mapping[key] = value


@torch.no_grad()
def overwrite(target: Tensor, new: Tensor) -> None:
    """Write new values into a tensor for good: there is no way back."""
    target.copy_(new)


@torch.no_grad()
def carry_out(update: Update, averaged: Averaged = ()) -> None:
    """Write what a per-step method wants, in place and fused; nothing is kept for undo.

    Args:
        update: What to write.
        averaged: State of optimizers that is weights itself: the number of its tensor, the state z, and its share in
            the tensor y = share z + (1 - share) x. Both z and x are written as the tensor would be.
    """
    tensors = list(update.tensors)
    if averaged:
        _carry_out_averaged(update, tensors, averaged)
    elif isinstance(update, Multiply):
        torch._foreach_mul_(tensors, list(update.factors))
    elif isinstance(update, Clamp):
        torch._foreach_clamp_max_(tensors, list(update.bounds))
        torch._foreach_clamp_min_(tensors, [-bound for bound in update.bounds])
    else:
        torch._foreach_copy_(tensors, list(update.values))


def _carry_out_averaged(
    update: Update, tensors: Sequence[Tensor], averaged: Sequence[tuple[int, Tensor, float]]
) -> None:
    kept = {number: (state, share) for number, state, share in averaged}
    for number, y in enumerate(tensors):
        z, share = kept.get(number, (None, 0.0))
        x = y if z is None else (y - share * z.to(y)) / (1 - share)
        x = _written(update, number, x)
        if z is not None:
            z.copy_(_written(update, number, z))
        y.copy_(x if z is None else share * z.to(y) + (1 - share) * x)


def _written(update: Update, number: int, values: Tensor) -> Tensor:
    if isinstance(update, Multiply):
        return values * update.factors[number]
    if isinstance(update, Clamp):
        return values.clamp(-update.bounds[number], update.bounds[number])
    return update.values[number].to(values)


@torch.no_grad()
def spread(tensors: Sequence[Tensor], optimizers: Sequence[Optimizer]) -> None:
    """Give every process the first one's values: tensors, and what the optimizers keep of them beside them."""
    for tensor in tensors:
        dist.broadcast(tensor, 0)
        for kept in (value for each in optimizers for value in each.state.get(tensor, {}).values()):
            if isinstance(kept, Tensor) and kept.device == tensor.device:
                dist.broadcast(kept, 0)
