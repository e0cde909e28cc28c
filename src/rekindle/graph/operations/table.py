"""The table of operations: for each ATen operation what it means for units, and what it does to scale.

Both rules of an operation stand side by side in the file of its family, and `define` enters them here under the
operation's name, without overload and without the in-place underscore. An operation that is not in the table is named
by the graph as not understood; it is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from torch import Tensor

from rekindle.graph.scaling.scale_exponents import UNCHANGED, constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.trace_log import Location, TraceLog
from rekindle.graph.value import Value, distinct


@dataclass(frozen=True, eq=False)
class Call:
    """One operation of the traced computation, with values in place of tensors."""

    trace_log: TraceLog
    op: str
    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    shapes: Any = None  # shape of the result, or a list of shapes
    location: Location = field(default_factory=lambda: Location("", ""))

    @property
    def values(self) -> list[Value]:
        """All tensor operands, also those inside lists."""
        found: list[Value] = []
        for arg in (*self.args, *self.kwargs.values()):
            found += [v for v in (arg if isinstance(arg, (list, tuple)) else [arg]) if isinstance(v, Value)]
        return found

    def arg(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument given by position or by name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


UnitRule = Callable[[Call], Any]  # returns the value, or the values, that come out
ScaleRule = Callable[[Walk, Call], Any]  # returns their scale exponents


class Operation(NamedTuple):
    """Both rules of one operation, and whether its other operands than the first decide what of it is picked."""

    units: UnitRule
    scale: ScaleRule
    picks: bool = False


TABLE: dict[str, Operation] = {}
# What a rule raises, or torch on labels in place of numbers, when an operation is called in a way it does not know.
MISFIT = (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)


def define(ops: str | Iterable[str], *, units: UnitRule, scale: ScaleRule, picks: bool = False) -> None:
    """Enter operations into the table, by their names or a text with them.

    Args:
        ops: Names.
        units: What they mean for units.
        scale: What they do to scale.
        picks: Whether other operands than the first decide what of the first is picked (an index, a grid): units that
            these are made of leak into the result.

    Raises:
        ValueError: One of them is there already: it would have two meanings.
    """
    for op in ops.split() if isinstance(ops, str) else ops:
        if op in TABLE:
            raise ValueError(f"{op} is defined twice")
        TABLE[op] = Operation(units, scale, picks)


def units_after(call: Call) -> Any:
    """Return the value, or the values, that come out of an operation; opaque where it is not in the table."""
    operation = TABLE.get(call.op)
    if operation is None:
        return call.trace_log.gap(call.values, call.location)
    before = call.trace_log.mark()
    try:
        result = operation.units(call)
    except MISFIT:
        call.trace_log.back_to(before)
        return call.trace_log.gap(call.values, call.location)
    if operation.picks:
        result = _leaking(result, call.values[1:])
    call.trace_log.tape.append((call, result))
    return result


def _leaking(result: Any, others: Sequence[Value]) -> Any:
    """Let the units of operands leak into a result."""
    found = [value for value in others if value.relevant]
    if not found:
        return result
    if isinstance(result, list):
        return [_leaking(each, found) for each in result]
    leaks = distinct(result.leaks, *(labels for value in found for labels in (value.leaks, *value.unit_labels)))
    return replace(result, leaks=leaks, opaque=result.opaque.union(*(value.opaque for value in found)))


def scale_after(walk: Walk, call: Call) -> Any:
    """Return the scale exponents of what comes out of an operation."""
    try:
        return TABLE[call.op].scale(walk, call)
    except MISFIT:
        return non_homogeneous(walk, call)


def non_homogeneous(walk: Walk, call: Call) -> Any:
    """The scale rule of everything that has no better one: what goes in stays as it is, so what comes out does."""
    walk.fix([value for value in call.values if value.relevant], call.location)
    return [constant(UNCHANGED, ()) for _ in call.shapes] if isinstance(call.shapes, list) else as_it_is(call)


def as_it_is(call: Call) -> Tensor:
    """Return the scale exponents of a result that does not change."""
    return constant(UNCHANGED, call.shapes)


def note_product(walk: Walk, call: Call, a: Any, b: Any, result: Tensor) -> None:
    """A product of two activations is not homogeneous, unless one cannot change or divides the other's size out."""
    both = [x for x in (a, b) if isinstance(x, Value) and x.data and not walk.exponents.is_unchanged(walk.field(x))]
    if len(both) == 2 and not walk.exponents.is_unchanged(result):
        walk.curve(both, call.location)
