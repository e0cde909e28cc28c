"""The user's own data as batches that can be gone through again and again, in an order that a seed decides."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from rekindle.errors import RekindleError
from rekindle.observe.visit import batches_of, size_of
from rekindle.seeds import generator, global_seed, seed_of

EVALUATED = 1024  # examples of a test batch, where the user gives tensors


class BatchesError(RekindleError):
    """Data that cannot be trained or tested on."""


class TrainingBatches:
    """Batches to train on. One seed gives one order, whoever asks.

    Batches that were given keep what is in them and change places; of tensors, the examples are shuffled anew in every
    epoch, and an incomplete last batch is left out.

    Args:
        data: Batches (a list, a DataLoader), of which only `most` are taken; or (inputs, targets), two tensors.
        batch_size: Examples of a batch, where tensors are given.
        device: Where the batches shall be.
        most: So many batches at most are kept in memory; None for all.

    Example:
        >>> batches = TrainingBatches((torch.arange(5.0), torch.arange(5)), batch_size=2)
        >>> batches.each, [len(inputs) for inputs, _ in batches.batches(seed=0, steps=3)]
        (2, [2, 2, 2])
    """

    def __init__(
        self, data: Any, *, batch_size: int = 256, device: torch.device | None = None, most: int | None = None
    ) -> None:
        self._tensors: tuple[Tensor, Tensor] | None = None
        self._batches: list[Any] = []
        if is_pair(data):
            self._tensors = (_checked(data)[0].to(device), data[1].to(device))
            self.size = min(batch_size, len(data[1]))
        else:
            self._batches = list(itertools.islice(batches_of(data, device, "training"), most))
            self.size = size_of(self._batches[0])

    @property
    def each(self) -> int:
        """Batches of an epoch."""
        return len(self._batches) if self._tensors is None else len(self._tensors[1]) // self.size

    @property
    def first(self) -> Any:
        """The first batch, as it was given."""
        if self._tensors is None:
            return self._batches[0]
        return tuple(tensor[: self.size] for tensor in self._tensors)

    def batches(self, seed: int, steps: int) -> Iterator[Any]:
        """Yield so many batches, epoch by epoch."""
        for step in range(steps):
            epoch, place = divmod(step, self.each)
            if place == 0:
                order = self._order(generator(seed, f"epoch {epoch}", "order"))
            yield self._batch(order[place])

    def plain(self) -> Iterator[Any]:
        """Yield every batch once, in the order in which it was given."""
        for place in range(self.each):
            yield self._batch(torch.arange(place * self.size, (place + 1) * self.size) if self._tensors else place)

    def _order(self, source: torch.Generator) -> Any:
        if self._tensors is None:
            return torch.randperm(self.each, generator=source).tolist()
        return torch.randperm(len(self._tensors[1]), generator=source).split(self.size)

    def _batch(self, which: Any) -> Any:
        if self._tensors is None:
            return self._batches[which]
        which = which.to(self._tensors[1].device)
        return self._tensors[0][which], self._tensors[1][which]

    @property
    def digest(self) -> str:
        """Eight hex digits of what is in it."""
        return digest(pytree.tree_leaves(self._tensors or self._batches))


def held_out(data: Any, device: torch.device | None = None) -> list[Any]:
    """Return the batches of test data: all that are given, or those of two tensors."""
    if not is_pair(data):
        return list(batches_of(data, device, "testing"))
    pair = zip(*(tensor.to(device).split(EVALUATED) for tensor in _checked(data)), strict=True)
    return list(pair)


def is_pair(data: Any) -> bool:
    """Tell (inputs, targets), two tensors in a tuple, from batches; a list holds batches."""
    return isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Tensor) for part in data)


def _checked(data: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    inputs, targets = data
    if not inputs.ndim or not targets.ndim or len(inputs) != len(targets) or not len(targets):
        raise BatchesError(
            expected="(inputs, targets) of the same length, at least 1",
            got=f"shapes {tuple(inputs.shape)} and {tuple(targets.shape)}",
            fix="give one target for each input, or a list of batches",
        )
    return inputs, targets


def digest(leaves: Iterable[Any]) -> str:
    """Return eight hex digits of the content of tensors; what is no tensor counts by its text."""
    content = hashlib.sha256()
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            content.update(f"{leaf.dtype}{tuple(leaf.shape)}".encode())
            content.update(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        else:
            content.update(repr(leaf).encode())
    return content.hexdigest()[:8]


@contextlib.contextmanager
def own_generators(seed: int, reason: str, *loaders: Any) -> Iterator[None]:
    """Seed the generators of torch, NumPy and Python, for foreign code that draws from them; then put all back.

    Args:
        seed: The seed.
        reason: What is drawn.
        *loaders: DataLoaders, whose own generators are put back too.
    """
    owned = _owned(loaders)
    before = [source.get_state() for source in owned]
    numpy_before, python_before = np.random.get_state(), random.getstate()
    number = seed_of(seed, "compare", reason)
    try:
        with global_seed(seed, "compare", reason):
            np.random.seed(number % 2**32)
            random.seed(number)
            yield
    finally:
        np.random.set_state(numpy_before)
        random.setstate(python_before)
        for source, state in zip(owned, before, strict=True):
            source.set_state(state)


def _owned(loaders: Sequence[Any]) -> list[torch.Generator]:
    places = [place for loader in loaders for place in (loader, getattr(loader, "sampler", None))]
    found = [getattr(place, "generator", None) for place in places]
    return [source for source in found if isinstance(source, torch.Generator)]
