"""Small work side by side: one thread a piece, instead of all threads on each piece in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Given = TypeVar("Given")
Made = TypeVar("Made")


def side_by_side(function: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
    """Return [function(item) for item in items], shared among as many threads as torch uses.

    Factorizations of a few hundred rows hardly gain from a second thread, many of them do. Each item is worked on by
    one thread and without gradients, so a result does not depend on its neighbors. Inside such a thread this is a
    plain loop.

    Example:
        >>> side_by_side(lambda n: n * n, [1, 2, 3])
        [1, 4, 9]
    """
    items = list(items)
    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2:
        return [function(item) for item in items]
    try:
        with ThreadPoolExecutor(min(threads, len(items)), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(torch.no_grad()(function), items))
    finally:
        torch.set_num_threads(threads)
