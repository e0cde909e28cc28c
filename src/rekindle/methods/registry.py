"""All methods by key: those of this package, found by their files, and those of others, found by entry points.

`one_shot/fire.py` holds the method `fire`, the class `Fire`. A package of somebody else names its methods in the
entry-point group `rekindle.methods`: `soften = "their_package.soften:Soften"`. There is no list to edit.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from rekindle.errors import PluginWarning, SettingsError
from rekindle.methods.card import Card, Kind
from rekindle.methods.kinds import NEEDS, kind_of
from rekindle.methods.spec import links, settings_from, split

GROUP = "rekindle.methods"
FOLDERS: dict[str, Kind] = {
    "one_shot": "one-shot",
    "per_step": "per-step",
    "recyclers": "recycler",
    "optimizers": "optimizer",
}


@dataclass(frozen=True)
class Place:
    """Where a method is.

    Args:
        module: Its module.
        name: The class in it.
        package: The package that it comes with.
    """

    module: str
    name: str
    package: str = "rekindle"

    def load(self) -> type[Any]:
        """Return the settings class."""
        found: type[Any] = getattr(importlib.import_module(self.module), self.name)
        return found


@cache
def places() -> Mapping[str, Place]:
    """Return for each method's key where it is; those of other packages were loaded and found to be methods."""
    own = dict(_own())
    return dict(sorted({**own, **_others(own)}.items()))


def _own() -> Iterator[tuple[str, Place]]:
    for folder in FOLDERS:
        package = importlib.import_module(f"rekindle.methods.{folder}")
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                yield module.name, Place(f"{package.__name__}.{module.name}", camel(module.name))


def _others(own: Mapping[str, Place]) -> dict[str, Place]:
    """Return the methods of other packages; one that cannot be loaded, or whose name is taken, is told and left out."""
    found: dict[str, Place] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        package = point.dist.name if point.dist is not None else point.module
        taken = own.get(point.name) or found.get(point.name)
        if taken is not None:
            if (taken.module, taken.name) != (point.module, point.attr):  # an editable install may be listed twice
                _tell(point, package, f"{taken.package} has a method of that name, which stays")
            continue
        try:
            _check(point, point.load())
        except Exception as error:
            _tell(point, package, f"{type(error).__name__}: {error}")
        else:
            found[point.name] = Place(point.module, point.attr, package)
    return found


def _check(point: EntryPoint, cls: Any) -> None:
    """Raise where an entry point does not lead to a method of its name."""
    if not isinstance(cls, type) or getattr(cls, "kind", None) not in NEEDS:
        raise SettingsError(
            expected="a class made by one_shot_method, per_step_method, recycler_method or optimizer_method",
            got=repr(cls)[:100],
            fix="let the entry point name the class: key = 'package.module:ClassName'",
        )
    if cls.key != point.name:  # type: ignore[attr-defined]
        raise SettingsError(
            expected=f"the key of {cls.__name__}, {cls.key}, as the name of its entry point",  # type: ignore[attr-defined]
            got=point.name,
            fix="name the entry point after the class, or the class after the entry point",
        )


def _tell(point: EntryPoint, package: str, why: str) -> None:
    warnings.warn(f"method {point.name} of {package} ({point.value}) is left out: {why}", PluginWarning, stacklevel=2)


def camel(key: str) -> str:
    """Return the name of the settings class of a key.

    Example:
        >>> camel("shrink_perturb")
        'ShrinkPerturb'
    """
    return "".join(part.capitalize() for part in key.split("_"))


@cache
def aliases() -> Mapping[str, str]:
    """Return other spellings that people type, with the key of each."""
    return {alias: card.key for card in list_methods() for alias in card.aliases}


def _nearest(key: str) -> str:
    """Return what somebody who typed a key that does not exist may have meant."""
    known, near = aliases().get(key.lower()), get_close_matches(key, places(), 1)
    if known or near:
        return f"its one spelling is {known!r}" if known else f"did you mean {near[0]!r}? `rekindle list` shows all"
    return "`rekindle list` shows what each one does; one of your own needs an entry point, see CONTRIBUTING"


def settings_class(key: str) -> type[Any]:
    """Return the settings class of a method.

    Raises:
        SettingsError: There is no such method.
    """
    if key not in places():
        raise SettingsError(expected=f"a method: {', '.join(places())}", got=repr(key), fix=_nearest(key))
    return places()[key].load()


def keys_of(kind: Kind) -> tuple[str, ...]:
    """Return the keys of all methods of a kind.

    Example:
        >>> "muon" in keys_of("optimizer")
        True
    """
    return tuple(card.key for card in list_methods() if card.kind == kind)


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
    """Return the methods of a spec: a string (joined with `+`), settings, or a sequence of either.

    Raises:
        SettingsError: Something is no method.
    """
    if isinstance(spec, str):
        parts = [split(part) for part in links(spec)]
        return tuple(settings_from(settings_class(key), given) for key, given in parts)
    if isinstance(spec, (list, tuple)):
        return tuple(one for part in spec for one in methods(part))
    kind_of(spec)
    return (spec,)
