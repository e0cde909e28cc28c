"""Methods are found by their file: `one_shot/fire.py` holds the method `fire`. There is no list to edit.

A method's module has `CARD`, a settings class named after the key in CamelCase, and the public function `fire_`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any, Protocol, runtime_checkable

from rekindle.edits.edit import Edits
from rekindle.errors import SettingsError
from rekindle.methods.card import Card, Method
from rekindle.methods.spec import links, settings_from, split

FOLDERS = ("one_shot", "per_step", "recyclers", "optimizers")


@runtime_checkable
class OneShotMethod(Method, Protocol):
    """A one-shot method: frozen settings that can plan edits."""

    def plan(self, graph: Any, evidence: Any, seed: int) -> Edits:
        """Return the edits for a graph; nothing is written."""


@cache
def places() -> dict[str, str]:
    """Return for each method's key the module that holds it."""
    found = {}
    for folder in FOLDERS:
        package = importlib.import_module(f"rekindle.methods.{folder}")
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                found[module.name] = f"{package.__name__}.{module.name}"
    return dict(sorted(found.items()))


def camel(key: str) -> str:
    """Return the name of the settings class of a key.

    Example:
        >>> camel("shrink_perturb")
        'ShrinkPerturb'
    """
    return "".join(part.capitalize() for part in key.split("_"))


def settings_class(key: str) -> type[Any]:
    """Return the settings class of a method.

    Raises:
        SettingsError: There is no such method.
    """
    if key not in places():
        raise SettingsError(
            expected=f"a method: {', '.join(places())}",
            got=repr(key),
            fix="see `rekindle list` for what each one does",
        )
    found: type[Any] = getattr(importlib.import_module(places()[key]), camel(key))
    return found


def list_methods() -> list[Card]:
    """Return the cards of all methods, by key.

    Example:
        >>> {"fire", "full_reset", "shrink_perturb"} <= {card.key for card in list_methods()}
        True
    """
    return [settings_class(key).card for key in places()]


def method(spec: str) -> Any:
    """Return the settings for a spec string `name:key=value,key=value`.

    Values are read as the setting's type; lists are written with bars: `skip=head.*|stem.*`.

    Example:
        >>> method("shrink_perturb:shrink=0.5").shrink
        0.5
    """
    chain = methods(spec)
    if len(chain) != 1:
        raise SettingsError(
            expected="the spec of one method",
            got=f"{spec!r}, which names {len(chain)}",
            fix="pass the whole string to apply_ or plan, which take several",
        )
    return chain[0]


def methods(spec: Any) -> tuple[Any, ...]:
    """Return the methods of a spec: a string (joined with `+`), settings, or a sequence of either."""
    if isinstance(spec, str):
        parts = [split(part) for part in links(spec)]
        return tuple(settings_from(settings_class(key), given) for key, given in parts)
    if isinstance(spec, (list, tuple)):
        return tuple(one for part in spec for one in methods(part))
    return (spec,)
