"""The public function of a method: `rk.fire_(model, optimizer, **settings and context)`, `rk.muon(model, ...)`.

They are made from the settings class, so that a signature is typed nowhere: names, types, defaults and words come from
the class and from `rekindle.apply_`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from rekindle.edits.record import ChangeRecord
from rekindle.methods.apply import apply_
from rekindle.methods.card import meanings
from rekindle.methods.registry import settings_class

POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
KEYWORD = inspect.Parameter.KEYWORD_ONLY


@cache
def function_of(key: str) -> Callable[..., Any]:
    """Return the public function of a one-shot method (`fire_`) or of an optimizer (`muon`).

    Example:
        >>> import inspect
        >>> list(inspect.signature(function_of("full_reset")).parameters)[:4]
        ['model', 'optimizer', 'skip', 'example']
    """
    cls = settings_class(key)
    return _one_shot(cls) if cls.kind == "one-shot" else _optimizer(cls)


def _one_shot(cls: Any) -> Callable[..., ChangeRecord]:
    own = settings_of(cls)

    def treat(model: Any, optimizer: Any = None, **given: Any) -> ChangeRecord:
        context = {name: given.pop(name) for name in list(given) if name in CONTEXT}
        return apply_(cls(**given), model, optimizer, **context)

    first = [parameter for parameter in APPLY.parameters.values() if parameter.name in ("model", "optimizer")]
    context = [parameter for parameter in APPLY.parameters.values() if parameter.name in CONTEXT]
    words = {name: APPLY_WORDS[name] for name in ("model", "optimizer")} | meanings(cls) | _context_words()
    return _dressed(treat, f"{cls.key}_", cls, [*first, *own, *context], words, "ChangeRecord")


def _optimizer(cls: Any) -> Callable[..., Any]:
    def build(model: Any, example: Any = None, *, graph: Any = None, **given: Any) -> Any:
        return cls(**given).build(model, example, graph=graph)

    taken = [p for p in inspect.signature(cls.build).parameters.values() if p.name != "self"]
    own = settings_of(cls)
    words = {"model": APPLY_WORDS["model"], "example": APPLY_WORDS["example"], "graph": APPLY_WORDS["graph"]}
    return _dressed(build, cls.key, cls, [*taken, *own], words | meanings(cls), "Optimizer")


def settings_of(cls: Any) -> list[inspect.Parameter]:
    """Return the settings of a class as keyword parameters."""
    return [
        inspect.Parameter(field.name, KEYWORD, default=field.default, annotation=field.type)
        for field in dataclasses.fields(cls)
    ]


def _dressed(
    function: Callable[..., Any],
    name: str,
    cls: Any,
    parameters: list[inspect.Parameter],
    words: dict[str, str],
    returns: str,
) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = cls.__module__
    function.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    given = "\n".join(f"    {each.name}: {words[each.name]}" for each in parameters if each.name in words)
    function.__doc__ = (
        f"{cls.card.title}: {cls.card.summary}\n\nArgs:\n{given}\n\nThe whole card: `rekindle list {cls.key}`."
    )
    return function


APPLY = inspect.signature(apply_)
APPLY_WORDS = meanings(apply_)
CONTEXT = tuple(name for name in APPLY.parameters if name not in ("method", "model", "optimizer"))


def _context_words() -> dict[str, str]:
    return {name: APPLY_WORDS[name] for name in CONTEXT}
