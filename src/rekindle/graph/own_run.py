"""Whether the model is being run by us - to trace it, to measure it - and not by whoever trains it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

Hook = TypeVar("Hook", bound=Callable[..., Any])

_MARK = "_rekindle_watches"
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


def watching(hook: Hook) -> Hook:
    """Mark a hook as one that watches somebody's training: in a run of ours it does nothing."""
    setattr(hook, _MARK, True)
    return hook


def is_watching(hook: Any) -> bool:
    """Tell whether a hook was marked as one that watches."""
    return getattr(hook, _MARK, False) is True
