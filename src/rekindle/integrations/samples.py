"""Examples and batches out of a host's data, which then goes on as if nobody had looked.

They are taken from the dataset, not from the loader: an iterator of the loader would draw from its generators, and a
stream would have lost a batch.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import IterableDataset

from rekindle.errors import KeeperError
from rekindle.graph.calls.containers import map_tensors

EXAMPLE = 2  # samples of an example: a structure shows in two as in many
BATCHES = 16  # batches for methods that look at data, and for running statistics


class Samples:
    """A few batches of a host's dataset, spread over all of it, the same each time and in each process.

    Datasets are often sorted by class or by source, so that the first batches are not like the rest.
    """

    def __init__(self, loader: Any, size: int, batches: int = BATCHES) -> None:
        """Look at a loader; see `refuse_streams` for what it cannot be."""
        self._dataset, self._collate = loader.dataset, loader.collate_fn
        self._size, self._batches = max(1, size), batches

    def __iter__(self) -> Iterator[Any]:
        length = len(self._dataset)
        count = min(length, self._size * self._batches)
        places = [number * length // count for number in range(count)]
        collate = own_copy(self._collate)
        for start in range(0, count, self._size):
            yield collated(self._dataset, collate, places[start : start + self._size])


def example_of(loader: Any, device: torch.device | None) -> Any:
    """Return what a model is called with: the first samples of the dataset, on the model's device."""
    places = range(min(EXAMPLE, len(loader.dataset)))
    return map_tensors(lambda t: t.to(device), collated(loader.dataset, own_copy(loader.collate_fn), places))


def collated(dataset: Any, collate: Any, places: Sequence[int]) -> Any:
    """Return samples as a batch; generators of torch, numpy and Python are as before."""
    with undisturbed():
        return collate([dataset[place] for place in places])


def own_copy(collate: Any) -> Any:
    """Return a copy of a collator, so that a generator which it keeps does not move; a model in it stays the same."""
    try:
        return copy.deepcopy(collate, {id(model): model for model in _models_in(collate)})
    except Exception as error:
        raise KeeperError(
            expected="a collator that can be copied, to look at samples and leave its generator alone",
            got=f"{type(collate).__name__}: {error}",
            fix="pass example=, a batch as your model is called with; methods that look at data, and statistics of "
            "BatchNorm after a treatment, need a collator that copy.deepcopy takes",
        ) from error


def _models_in(collate: Any) -> Iterator[nn.Module]:
    """Yield the models that a collator keeps, also one that is wrapped: those for sequences to sequences keep one."""
    for held in getattr(collate, "__dict__", {}).values():
        if isinstance(held, nn.Module):
            yield held
        elif callable(held) and held is not collate:
            yield from _models_in(held)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Put the global generators back afterwards: collators mask at random, datasets augment."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def can_be_looked_at(loader: Any) -> bool:
    """Tell whether samples can be read without taking them away: not from a stream."""
    dataset: Any = getattr(loader, "dataset", None)
    readable = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    return readable and not isinstance(dataset, IterableDataset) and hasattr(loader, "collate_fn") and len(dataset) > 0


def refuse_streams(loader: Any, methods: Sequence[Any]) -> None:
    """Refuse to take samples from a stream.

    Raises:
        KeeperError: The data cannot be looked at.
    """
    if not can_be_looked_at(loader):
        raise KeeperError(
            expected=f"example= for {' + '.join(one.key for one in methods)}, or a dataset whose samples can be read",
            got=f"no example, and a {type(getattr(loader, 'dataset', loader)).__name__}: what is read may be gone",
            fix="pass example=, a batch as your model is called with",
        )


def refuse_unseen_data(loader: Any, methods: Sequence[Any]) -> None:
    """Refuse methods that look at data where it cannot be looked at.

    Raises:
        KeeperError: There are some.
    """
    if methods and not can_be_looked_at(loader):
        raise KeeperError(
            expected=f"a dataset whose samples can be read, for {methods[0].key}, which looks at data",
            got=f"a {type(getattr(loader, 'dataset', loader)).__name__}: what is read may be gone",
            fix="give the Trainer a dataset with lengths and places, or treat the model between two trainings with "
            "rk.apply_(..., data=)",
        )
