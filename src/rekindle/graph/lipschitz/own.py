"""What one operation does to distances, as a value, and how it is found by the operation's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rekindle.graph.operations.table import MISFIT, Call
from rekindle.graph.value import Value

FromTensors = Literal["", "weight", "batch_norm", "largest", "inverse", "slope"]


@dataclass(frozen=True)
class Own:
    """The Lipschitz constant of an operation (L2 norm, all elements of a value taken as one vector), or a bound of it.

    Args:
        factors: One for each operand that depends on the model's input, in order.
        apart: Whether the operands end up in different elements of the result (a concatenation), so that squares add
            up; otherwise they meet in a sum, and the bounds themselves add up.
        stored: What it is multiplied by, from tensors of the model: "weight" (the layer's norm), "batch_norm" (largest
            |scale| / sqrt(variance + epsilon)), "largest" (|value|), "inverse" (1 / smallest |value|), "slope" (largest
            of 1 and |value|).
        tensors: Their names; for "batch_norm" the variance, and the scale if there is one.
        epsilon: What BatchNorm adds to the variance.
    """

    factors: tuple[float, ...]
    apart: bool = False
    stored: FromTensors = ""
    tensors: tuple[str, ...] = ()
    epsilon: float = 0.0


Rule = Callable[[Call], Own | None]  # None: there is no bound, or none is known
RULES: dict[str, Rule] = {}


def bounds(*ops: str) -> Callable[[Rule], Rule]:
    """Register a rule for operations."""

    def register(found: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, found))
        return found

    return register


def own_bound(call: Call) -> Own | None:
    """Return what an operation does to distances; None where that is not known."""
    rule = RULES.get(call.op)
    if rule is None:
        return None
    try:
        found = rule(call)
    except (ArithmeticError, *MISFIT):
        return None
    return found if found is not None and len(found.factors) == len(operands_of(call)) else None


def operands_of(call: Call) -> list[Value]:
    """Return the operands that depend on the model's input."""
    return [value for value in call.values if value.data]


def only_first(call: Call, factor: float) -> Own | None:
    """Return a constant for an operation on its first operand, if no other one depends on the input."""
    first = call.args[0]
    return Own((factor,)) if isinstance(first, Value) and first.data and len(operands_of(call)) == 1 else None
