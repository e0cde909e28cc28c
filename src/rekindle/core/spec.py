"""Spec strings `name:key=value,key=value`: how protocols, data, models and optimizers are asked for in one line."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pydantic

from rekindle.core.errors import SettingsError


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
                fix="write it as in sgd:lr=0.003,momentum=0.9",
            )
        given[key.strip()] = value.strip()
    return name.strip(), given


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
        return list(make.__dataclass_fields__)
    return list(inspect.signature(make).parameters)


def _hints(make: Any) -> dict[str, Any]:
    wants_init = isinstance(make, type) and not hasattr(make, "__dataclass_fields__")
    return typing.get_type_hints(make.__init__ if wants_init else make, include_extras=True)


def _read(name: str, key: str, text: str, hint: Any) -> Any:
    value: Any = tuple(text.split("|")) if _is_list(hint) else text
    value = None if text.lower() == "none" and _may_be_none(hint) else value
    try:
        return pydantic.TypeAdapter(hint).validate_python(value)
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
