"""A value that is computed when it is first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """Computes a value once, when it is first asked for; whoever shares the object shares the value.

    A copy or a pickle holds the value itself, not what it is computed from.

    Example:
        >>> number = Lazy(lambda: print("computed") or 7)
        >>> number.get(), number.get()
        computed
        (7, 7)
    """

    def __init__(self, compute: Callable[[], T]) -> None:
        """Remember how to compute the value."""
        self._compute: Callable[[], T] | None = compute
        self._value: T | None = None

    def get(self) -> T:
        """Return the value."""
        compute = self._compute
        if compute is not None:
            self._value = compute()  # an interrupt leaves it to be computed again
            self._compute = None  # what it was computed from may go
        return self._value  # type: ignore[return-value]

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copies and pickles hold the value."""
        return known, (self.get(),)


def known(value: T) -> Lazy[T]:
    """Return a value that needs no computing."""
    return Lazy(lambda: value)
