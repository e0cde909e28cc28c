"""Patterns of tensor names, and the names of running statistics."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether a name fits one of the patterns, as a shell would read them.

    Example:
        >>> matches("head.weight", ["stem.*", "head.*"])
        True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_statistic(name: str) -> bool:
    """Tell the running statistics of a normalization layer from what is trained.

    Example:
        >>> is_statistic("stem.1.running_var"), is_statistic("stem.1.weight")
        (True, False)
    """
    return name.rpartition(".")[2] in STATISTICS
