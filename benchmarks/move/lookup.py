"""Finds code of a checkout by its name before the move, wherever it is now."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import renames


class ObserverError(Exception):
    """The observer is wrong, not the library: `renames.py` lacks an entry, or a key was used twice."""


old_names_only = False  # set by `observe.py --old-names`: then the code is that before the move


def find(place: str) -> Any:
    """Return what stood at "package.module:name" before the move; "package.module" alone is the module.

    Raises:
        ObserverError: It is neither under its new name nor under its old one.
    """
    for one in _places(place):
        module, _, name = one.partition(":")
        try:
            found = importlib.import_module(module)
            return getattr(found, name) if name else found
        except (ImportError, AttributeError):
            continue
    raise ObserverError(f"{place} is nowhere: say in renames.py where it went")


def _places(place: str) -> Iterator[str]:
    """Yield where something may be: where `MODULES` says of just this name, then wherever module and name point."""
    if place in renames.MODULES and not old_names_only:
        yield renames.MODULES[place]
    module, colon, name = place.partition(":")
    for path, attribute in itertools.product(_either(module, moved), _either(name, renamed)):
        yield f"{path}{colon}{attribute}"


def part(thing: Any, name: str) -> Any:
    """Return an attribute by its name before the move."""
    for attribute in _either(name, renamed):
        if hasattr(thing, attribute):
            return getattr(thing, attribute)
    raise ObserverError(f"{type(thing).__name__} has no {name}: say in renames.py what it is called now")


def spec(text: str, accepts: Callable[[str], Any]) -> str:
    """Return a spec string with settings as they are called now, or as it is if that is not accepted."""
    for attempt in _either(text, lambda old: re.sub(r"\w+", lambda word: renamed(word[0]), old)):
        try:
            accepts(attempt)
        except Exception:
            continue
        return attempt
    return text


def moved(module: str) -> str:
    """Return where a module is after the move: its own entry, or that of the longest package above it."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        above = ".".join(parts[:end])
        if above in renames.MODULES:
            return ".".join([renames.MODULES[above], *parts[end:]])
    return module


def renamed(name: str) -> str:
    """Return what an identifier is called after the move."""
    return renames.NAMES.get(name, name)


def _either(name: str, change: Callable[[str], str]) -> list[str]:
    """Return the name now, then the one before; the latter alone for code before the move."""
    return [name] if old_names_only else list(dict.fromkeys([change(name), name]))
