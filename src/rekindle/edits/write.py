"""The only writer of parameters, buffers and optimizer state.

A `Journal` notes the way back before each write, so that whatever interrupts a treatment can be taken back. Per-step
methods, which act on every step, write fused and keep nothing.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from rekindle.edits.update import Clamp, Multiply, Update

_ABSENT = object()


class Journal:
    """Writes with the way back.

    Every way back is noted before its write, and does no harm if the write did not happen: an exception or an interrupt
    between any two lines can be rolled back.
    """

    def __init__(self) -> None:
        self._back: list[Callable[[], Any]] = []
        self._written: list[Tensor] = []
        self._entries: list[tuple[MutableMapping[Any, Any], Any]] = []
        self._versions: list[int] = []
        self._values: list[Any] = []

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
            del mapping[key]

    def note(self, back: Callable[[], Any]) -> None:
        """Note a way back, to be called before the step that it takes back."""
        self._back.append(back)

    def watch(self, tensor: Tensor) -> None:
        """Count a tensor among those that must not have changed when the treatment is undone."""
        self._written.append(tensor)

    def seal(self) -> None:
        """Remember what tensors and entries are like now that everything is written."""
        self._versions = [tensor._version for tensor in self._written]
        self._values = [mapping.get(key, _ABSENT) for mapping, key in self._entries]

    def seal_again(self, tensors: frozenset[int]) -> None:
        """Remember anew what some tensors, by their ids, and all entries are like: we have written them ourselves."""
        for number, tensor in enumerate(self._written[: len(self._versions)]):
            if id(tensor) in tensors:
                self._versions[number] = tensor._version
        self._values = [mapping.get(key, _ABSENT) for mapping, key in self._entries]

    def touched(self) -> frozenset[int]:
        """Return the ids of tensors that were written and of mappings in which entries were set."""
        return frozenset(map(id, self._written)) | frozenset(id(mapping) for mapping, _ in self._entries)

    def written_since(self) -> tuple[int, int]:
        """Return how many tensors and entries were written or replaced after `seal`, and how many there are."""
        changed = sum(t._version != version for t, version in zip(self._written, self._versions, strict=False))
        entries = zip(self._entries, self._values, strict=False)
        replaced = sum(mapping.get(key, _ABSENT) is not value for (mapping, key), value in entries)
        return changed + replaced, len(self._versions) + len(self._values)

    def roll_back(self) -> None:
        """Take everything back, last write first."""
        while self._back:
            self._back[-1]()
            self._back.pop()
        self._written, self._entries, self._versions, self._values = [], [], [], []


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
def carry_out(update: Update) -> None:
    """Write what a per-step method wants, in place and fused; nothing is kept for undo."""
    tensors = list(update.tensors)
    if isinstance(update, Multiply):
        torch._foreach_mul_(tensors, list(update.factors))
    elif isinstance(update, Clamp):
        torch._foreach_clamp_max_(tensors, list(update.bounds))
        torch._foreach_clamp_min_(tensors, [-bound for bound in update.bounds])
    else:
        torch._foreach_copy_(tensors, list(update.values))


@torch.no_grad()
def spread(tensors: Sequence[Tensor], optimizers: Sequence[Optimizer]) -> None:
    """Give every process the first one's values: tensors, and what the optimizers keep of them beside them."""
    for tensor in tensors:
        dist.broadcast(tensor, 0)
        for kept in (value for each in optimizers for value in each.state.get(tensor, {}).values()):
            if isinstance(kept, Tensor) and kept.device == tensor.device:
                dist.broadcast(kept, 0)
