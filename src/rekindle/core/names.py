"""Patterns of tensor names."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether a name fits one of the patterns, as a shell would read them.

    Example:
        >>> matches("head.weight", ["stem.*", "head.*"])
        True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)
