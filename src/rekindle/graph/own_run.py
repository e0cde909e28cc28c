"""Whether the model is being run by us - to trace it, to measure it - and not by whoever trains it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_OURS: ContextVar[bool] = ContextVar("rekindle_own_run", default=False)


@contextlib.contextmanager
def own_run() -> Iterator[None]:
    """Say that what is run inside is run by us: hooks that watch somebody's training do not count it."""
    before = _OURS.set(True)
    try:
        yield
    finally:
        _OURS.reset(before)


def set_own_run(ours: bool) -> None:
    """Say whether the model is being run by us, for as long as nobody says otherwise: to put back what was."""
    _OURS.set(ours)


def is_own_run() -> bool:
    """Tell whether the model is being run by us.

    Example:
        >>> with own_run():
        ...     is_own_run()
        True
        >>> is_own_run()
        False
    """
    return _OURS.get()
