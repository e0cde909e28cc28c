"""Methods are found by their file: `interventions/fire.py` holds the method `fire`. There is no list to edit.

A method's module has `CARD`, a settings class named after the key in CamelCase, and the public function `fire_`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol, runtime_checkable

from rekindle.core.card import Card, Method
from rekindle.core.edit import Edits
from rekindle.core.errors import SettingsError

ROOMS = ("interventions", "steps", "recyclers")


@runtime_checkable
class Intervention(Method, Protocol):
    """A one-shot method: frozen settings that can plan edits."""

    def plan(self, graph: Any, evidence: Any, seed: int) -> Edits:
        """Return the edits for a graph; nothing is written."""


@cache
def places() -> dict[str, str]:
    """Return for each method's key the module that holds it."""
    found = {}
    for room in ROOMS:
        package = importlib.import_module(f"rekindle.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                found[module.name] = f"rekindle.{room}.{module.name}"
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
        return tuple(_parse(part) for part in spec.split("+"))
    if isinstance(spec, (list, tuple)):
        return tuple(one for part in spec for one in methods(part))
    return (spec,)


def _parse(part: str) -> Any:
    key, _, rest = part.strip().partition(":")
    cls = settings_class(key.strip())
    given: dict[str, Any] = {}
    for item in rest.split(",") if rest.strip() else ():
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise SettingsError(
                expected="settings as key=value, separated by commas",
                got=repr(item),
                fix=f"write it as in {key}:" + ",".join(f"{n}={v}" for n, v in _some_defaults(cls)),
            )
        given[name.strip()] = _value(cls, name.strip(), value.strip())
    return cls(**given)


def _value(cls: type[Any], name: str, text: str) -> Any:
    annotation = str(getattr(cls, "__annotations__", {}).get(name, ""))
    if "tuple" in annotation:
        return tuple(text.split("|"))
    return None if text.lower() == "none" and "None" in annotation else text


def _some_defaults(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    fields = getattr(cls, "__dataclass_fields__", {})
    yield from [(name, field.default) for name, field in fields.items()][:2]
