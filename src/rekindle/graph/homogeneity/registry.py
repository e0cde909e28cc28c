"""How a rule is found, and what happens where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from rekindle.graph.handlers.registry import Call
from rekindle.graph.homogeneity.forms import UNCHANGED, constant
from rekindle.graph.homogeneity.walk import Walk
from rekindle.graph.value import Value

Rule = Callable[[Walk, Call], Any]
RULES: dict[str, Rule] = {}


def rule(walk: Walk, call: Call) -> Any:
    """Return the fields of forms of an operation's result."""
    try:
        return RULES.get(call.op, curved)(walk, call)
    except (IndexError, RuntimeError, TypeError, ValueError):  # called in a way that the rule does not know
        return curved(walk, call)


def rules(*ops: str) -> Callable[[Rule], Rule]:
    """Register a rule for operations."""

    def register(found: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, found))
        return found

    return register


def curved(walk: Walk, call: Call) -> Any:
    """Anything else: what goes in stays as it is, so what comes out does."""
    walk.fix([value for value in call.values if value.relevant], call.site)
    return [constant(UNCHANGED, ()) for _ in call.shapes] if isinstance(call.shapes, list) else as_it_is(call)


def as_it_is(call: Call) -> Tensor:
    """Return the field of a result that does not change."""
    return constant(UNCHANGED, call.shapes)


def note_product(walk: Walk, call: Call, a: Any, b: Any, result: Tensor) -> None:
    """A product of two activations is curved, unless one cannot change, or one divides the other's size out."""
    both = [x for x in (a, b) if isinstance(x, Value) and x.data and not walk.forms.is_unchanged(walk.field(x))]
    if len(both) == 2 and not walk.forms.is_unchanged(result):
        walk.curve(both, call.site)
