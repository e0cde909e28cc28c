"""Spec strings `name:key=value,key=value`, joined with `+`: how everything is asked for in one line.

The one parser and the one printer, for methods, protocols, data, models, optimizers, schedules and augmentations.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pydantic

from rekindle.errors import SettingsError

UNTREATED, FRESH = "none", "fresh"  # what stands in the place of methods: nothing, and a new network


def split(spec: str) -> tuple[str, dict[str, str]]:
    """Return the name and the settings, still as text, of a spec string.

    Example:
        >>> split("sgd:lr=0.003,momentum=0.9")
        ('sgd', {'lr': '0.003', 'momentum': '0.9'})
    """
    name, _, rest = spec.strip().partition(":")
    given: dict[str, str] = {}
    for item in rest.split(",") if rest.strip() else ():
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise SettingsError(
                expected="settings as key=value, separated by commas",
                got=f"{item!r} in {spec!r}",
                fix="write it as in name:key=value,key=value",
            )
        given[key.strip()] = value.strip()
    return name.strip(), given


def name_of(spec: str) -> str:
    """Return the name in a spec string, whatever its settings are.

    Example:
        >>> name_of("sgd:lr=0.003")
        'sgd'
    """
    return spec.partition(":")[0].strip()


def links(spec: str) -> list[str]:
    """Return the parts of a spec string that are joined with `+`.

    Example:
        >>> links("fire + rescale:strength=0.5")
        ['fire', 'rescale:strength=0.5']
    """
    return [part.strip() for part in spec.split("+")]


def to_spec(thing: Any) -> str:
    """Return the spec string that gives a value of settings: what differs from its defaults; text as it is.

    Args:
        thing: Settings with a key, a spec string, or a sequence of either.

    Example:
        >>> from rekindle.methods.one_shot.fire import Fire
        >>> to_spec([Fire(iterations=5, solver="newton_schulz"), "rescale"])
        'fire:solver=newton_schulz,iterations=5+rescale'
    """
    if isinstance(thing, (list, tuple)):
        return "+".join(map(to_spec, thing))
    if isinstance(thing, str) or not (dataclasses.is_dataclass(thing) and hasattr(thing, "key")):
        return str(thing).strip()
    fields = [(field, getattr(thing, field.name)) for field in dataclasses.fields(thing) if field.compare]
    told = [f"{field.name}={_as_text(value)}" for field, value in fields if value != field.default]
    return f"{thing.key}:{','.join(told)}" if told else str(thing.key)


def _as_text(value: Any) -> str:
    return "|".join(map(str, value)) if isinstance(value, tuple) else str(value)


def change(spec: str, **settings: object) -> str:
    """Return a spec string with other settings: those it has in their places, others behind; None takes one out.

    Example:
        >>> change("sgd:lr=0.003,momentum=0.9", lr=0.1, momentum=None, weight_decay=1e-5)
        'sgd:lr=0.1,weight_decay=1e-05'
    """
    name, given = split(spec)
    whole = {**given, **settings}
    parts = [f"{key}={value}" for key, value in whole.items() if value is not None]
    return f"{name}:{','.join(parts)}" if parts else name


def fill(make: Callable[..., Any], spec: str, fixed: Mapping[str, Any] | None = None) -> Any:
    """Call a class or function with the settings of a spec string, read as the types it declares.

    Args:
        make: What to call; its keyword parameters are the settings. Lists are written with bars: `hidden=100|100`.
        spec: The whole string; the name before the colon is only told in errors.
        fixed: Arguments that are not for the user to choose.

    Raises:
        SettingsError: A setting does not exist or cannot be read.

    Example:
        >>> def net(hidden: tuple[int, ...] = (), bias: bool = True): return hidden, bias
        >>> fill(net, "net:hidden=3|4,bias=false")
        ((3, 4), False)
    """
    name, given = split(spec)
    fixed = fixed or {}
    hints = _hints(make)
    allowed = [key for key in _parameters(make) if key not in fixed]
    for key in given:
        if key not in allowed:
            raise SettingsError(
                expected=f"settings of {name}: {', '.join(allowed) or 'none'}",
                got=f"{key}={given[key]}",
                fix="use one of the names above",
            )
    read = {key: _read(name, key, text, hints.get(key, str)) for key, text in given.items()}
    return make(**read, **fixed)


def choose(kind: str, spec: str, known: Mapping[str, Any] | Iterable[str]) -> str:
    """Return the name in a spec string after checking that it is known."""
    name, _ = split(spec)
    if name not in known:
        raise SettingsError(
            expected=f"{kind}: {', '.join(known)}", got=repr(spec), fix="use one of the names above, then :key=value"
        )
    return name


def _parameters(make: Callable[..., Any]) -> list[str]:
    if hasattr(make, "__dataclass_fields__"):
        return [field.name for field in dataclasses.fields(make)]  # type: ignore[arg-type]
    return list(inspect.signature(make).parameters)


def _hints(make: Any) -> dict[str, Any]:
    wants_init = isinstance(make, type) and not hasattr(make, "__dataclass_fields__")
    return typing.get_type_hints(make.__init__ if wants_init else make, include_extras=True)


def settings_from(cls: type[Any], given: Mapping[str, str]) -> Any:
    """Return settings whose values are given as text; the class itself checks them and explains what is wrong."""
    hints = _hints(cls)
    return cls(**{key: _unpacked(text, hints.get(key, str)) for key, text in given.items()})


def _unpacked(text: str, hint: Any) -> Any:
    """Return a tuple where a list is meant, None where that may be, else the text as it is."""
    if text.lower() == "none" and _may_be_none(hint):
        return None
    return tuple(text.split("|")) if _is_list(hint) else text


def _read(name: str, key: str, text: str, hint: Any) -> Any:
    try:
        return pydantic.TypeAdapter(hint).validate_python(_unpacked(text, hint))
    except pydantic.ValidationError as error:
        raise SettingsError(
            expected=f"{key} of {name}: {_told(hint)} ({error.errors()[0]['msg']})",
            got=f"{key}={text}",
            fix="give a value as above, or leave it out for the default",
        ) from None


def _is_list(hint: Any) -> bool:
    options = typing.get_args(hint) if _is_union(hint) else (hint,)
    return any((typing.get_origin(option) or option) in (tuple, list) for option in options)


def _may_be_none(hint: Any) -> bool:
    return _is_union(hint) and type(None) in typing.get_args(hint)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _told(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
