"""Settings are values: frozen, printable, comparable, checked when they are made."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, TypeVar, cast

import pydantic
from pydantic.dataclasses import dataclass as checked_dataclass
from typing_extensions import dataclass_transform

from rekindle.errors import SettingsError

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[T]) -> type[T]:
    """Make a class of typed fields into frozen settings whose mistakes are told in three parts.

    Example:
        >>> @settings
        ... class Shrink:
        ...     factor: float = 0.8
        >>> Shrink(factor=0.5)
        Shrink(factor=0.5)
    """
    config = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)
    made: Any = checked_dataclass(cls, frozen=True, kw_only=True, config=config)
    checked_init = made.__init__

    @functools.wraps(checked_init)
    def __init__(self: T, **given: Any) -> None:
        try:
            checked_init(self, **given)
        except pydantic.ValidationError as error:
            raise _explain(cls.__name__, made, error) from None

    made.__init__ = __init__
    return cast(type[T], made)


def _explain(name: str, made: Any, error: pydantic.ValidationError) -> SettingsError:
    fields = {field.name: field for field in dataclasses.fields(made)}
    first = error.errors()[0]
    own = first.get("ctx", {}).get("error")
    if isinstance(own, SettingsError):  # of a `__post_init__`, which looks at several settings together
        return own
    key = str(first["loc"][0]) if first["loc"] else "?"
    if key not in fields:
        return SettingsError(
            expected=f"settings of {name}: {', '.join(fields) or 'none'}",
            got=f"{key}={first['input']!r}",
            fix=f"use one of the names above, or see `rekindle list {made.key}`"
            if hasattr(made, "key")
            else "see above",
        )
    return SettingsError(
        expected=f"{name}.{key}: {type_of(fields[key])} ({first['msg']})",
        got=f"{key}={first['input']!r}",
        fix=f"leave it out for the default {fields[key].default!r}, or give a value as above",
    )


def type_of(field: dataclasses.Field[Any]) -> str:
    """Return the type of a setting as a person would write it, bounds included."""
    return re.sub(r"Annotated\[(\w+), Field\(([^)]*)\)\]", r"\1 (\2)", str(field.type))
