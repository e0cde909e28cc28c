"""Other forward passes for some modules, for a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn


@contextlib.contextmanager
def forwards_replaced(forwards: Iterable[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Let modules run other forward passes for the time of the context; then all is as it was.

    Args:
        forwards: Modules with what they run; what an instance already has of its own is put back afterwards.

    Example:
        >>> layer = nn.ReLU()
        >>> with forwards_replaced([(layer, lambda x: -x)]):
        ...     layer(3)
        -3
        >>> "forward" in layer.__dict__
        False
    """
    forwards = list(forwards)
    before = [(module, module.__dict__.get("forward")) for module, _ in forwards]
    try:
        for module, forward in forwards:
            module.__dict__["forward"] = forward
        yield
    finally:
        for module, own in reversed(before):
            if own is None:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = own
