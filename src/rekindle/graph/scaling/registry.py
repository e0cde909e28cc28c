"""How a rule is found, and what happens where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from rekindle.graph.operations.registry import Call
from rekindle.graph.scaling.scale_exponents import UNCHANGED, constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value

ScaleRule = Callable[[Walk, Call], Any]
RULES: dict[str, ScaleRule] = {}


def rule(walk: Walk, call: Call) -> Any:
    """Return the scale exponents of an operation's result."""
    try:
        return RULES.get(call.op, non_homogeneous)(walk, call)
    except (IndexError, RuntimeError, TypeError, ValueError):  # called in a way that the rule does not know
        return non_homogeneous(walk, call)


def rules(*ops: str) -> Callable[[ScaleRule], ScaleRule]:
    """Register a rule for operations."""

    def register(found: ScaleRule) -> ScaleRule:
        RULES.update(dict.fromkeys(ops, found))
        return found

    return register


def non_homogeneous(walk: Walk, call: Call) -> Any:
    """Anything else: what goes in stays as it is, so what comes out does."""
    walk.fix([value for value in call.values if value.relevant], call.location)
    return [constant(UNCHANGED, ()) for _ in call.shapes] if isinstance(call.shapes, list) else as_it_is(call)


def as_it_is(call: Call) -> Tensor:
    """Return the field of a result that does not change."""
    return constant(UNCHANGED, call.shapes)


def note_product(walk: Walk, call: Call, a: Any, b: Any, result: Tensor) -> None:
    """A product of two activations is not homogeneous, unless one cannot change or divides the other's size out."""
    both = [x for x in (a, b) if isinstance(x, Value) and x.data and not walk.exponents.is_unchanged(walk.field(x))]
    if len(both) == 2 and not walk.exponents.is_unchanged(result):
        walk.curve(both, call.location)
