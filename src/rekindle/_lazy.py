"""Packages whose names are loaded when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy(
    package: str, homes: Mapping[str, str], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package.

    Args:
        package: Its name.
        homes: For each public name the module that has it: below the package, or by its whole name.
        modules: Modules and packages below it that are public themselves.

    Example:
        >>> get, names = lazy("rekindle", {"RekindleError": "errors"}, ["seeds"])
        >>> get("RekindleError").__name__, get("seeds").__name__, names()
        ('RekindleError', 'rekindle.seeds', ['RekindleError', 'seeds'])
    """

    def get(name: str) -> Any:
        if name in homes:
            home = homes[name]
            return getattr(importlib.import_module(home if home.startswith("rekindle.") else f"{package}.{home}"), name)
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted([*homes, *modules])
