"""Checks of torch.distributions, which look at values and are therefore left out while a model is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.distributions import Distribution

SWITCH = "_validate_args"


@contextlib.contextmanager
def unvalidated() -> Iterator[None]:
    """Let no distribution check its arguments or samples, whenever it was built; then all is as it was.

    The switch is looked up at the instance, then at its class: one that always says no stands before both. What a
    distribution that is built meanwhile is told stays with it.
    """
    before = switches()
    try:
        for cls, _ in before:
            setattr(cls, SWITCH, _Off(lambda _: False, _keep))
        yield
    finally:
        put_back(before)


def switches() -> list[tuple[type, Any]]:
    """Return the classes of distributions that have a switch of their own, with what it is."""
    return [(cls, vars(cls)[SWITCH]) for cls in _family(Distribution) if SWITCH in vars(cls)]


def put_back(before: list[tuple[type, Any]]) -> None:
    """Set switches to what they were, but for what somebody has set meanwhile, as the first torch.compile does."""
    for cls, value in before:
        if isinstance(vars(cls).get(SWITCH), _Off):
            setattr(cls, SWITCH, value)


class _Off(property):
    """Says no at every instance."""


def _keep(distribution: Any, value: bool) -> None:
    vars(distribution)[SWITCH] = value


def _family(cls: type) -> list[type]:
    below: list[type] = cls.__subclasses__()
    return list(dict.fromkeys([cls, *(each for inner in below for each in _family(inner))]))
