"""The computation as steps, each with its own Lipschitz constant, from the model's input to what it returns.

Values are numbers. Number 0 stands for the model's own input and for everything that the tracer does not follow, which
are operations on the input before the first weight: whatever they can do to distances is counted for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rekindle.graph.lipschitz.mixing import PIECES
from rekindle.graph.lipschitz.own import Own, operands_of, own_bound
from rekindle.graph.operations.elementwise import SAME_TENSOR
from rekindle.graph.operations.rearrange import VIEW
from rekindle.graph.operations.table import Call
from rekindle.graph.trace_log import TraceLog
from rekindle.graph.value import Value

NOT_FOLLOWED = 0


@dataclass(frozen=True)
class Step:
    """One operation.

    Args:
        location: "module: operation".
        operands: Numbers of the values that depend on the input.
        results: Numbers of what comes out.
        own: What it does to distances; None where no bound is known.
    """

    location: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    own: Own | None


@dataclass(frozen=True)
class Steps:
    """All of them, in order, and the numbers of what the model returns."""

    steps: tuple[Step, ...] = ()
    outputs: tuple[int, ...] = ()


def steps_of(trace_log: TraceLog) -> Steps:
    """Return the steps of a traced computation."""
    taped = {id(call): result for call, result in trace_log.tape}
    numbers: dict[int, int] = {}
    shared: dict[int, set[int]] = {}  # value -> all values that lie in the same memory
    steps = []
    for call in trace_log.calls:
        operands, results = operands_of(call), list(_flat(taped.get(id(call))))
        if call.shapes is None or not operands:
            continue
        before = tuple(numbers.get(id(value), NOT_FOLLOWED) for value in operands)
        after = {numbers.setdefault(id(value), len(numbers) + 1) for value in results if value.data}
        if not _is_followed(call, results):
            after.add(NOT_FOLLOWED)
        beside = _beside(call, results, numbers) | _overwritten(call, results, numbers, shared)
        steps.append(Step(str(call.location), before, tuple(sorted(after - beside or after)), own_bound(call)))
        if beside:
            steps.append(Step(str(call.location), before, tuple(sorted(beside)), None))
        _share(call, results, shared)
    outputs = tuple(numbers.get(id(value), NOT_FOLLOWED) for value in trace_log.results if value.data)
    return Steps(tuple(steps), outputs)


def _beside(call: Call, results: list[Value], numbers: dict[int, int]) -> set[int]:
    """Return the numbers of what comes out beside the result and has steps: the places of the largest, a mask."""
    if call.op in PIECES or not isinstance(call.shapes, list) or len(call.shapes) < 2:
        return set()
    return {numbers[id(value)] for value in results[1:] if value.data} if results else {NOT_FOLLOWED}


def _share(call: Call, results: list[Value], shared: dict[int, set[int]]) -> None:
    """Note that what comes out may lie in the memory of what goes in."""
    if getattr(call.target, "is_view", False) or call.op in (*VIEW, *SAME_TENSOR):
        family = {id(value) for value in (*call.values[:1], *results)}
        family |= {other for value in call.values[:1] for other in shared.get(id(value), ())}
        shared.update(dict.fromkeys(family, family))


def _overwritten(call: Call, results: list[Value], numbers: dict[int, int], shared: dict[int, set[int]]) -> set[int]:
    """Return the numbers of values that an operation in place changes too: the tracer follows its result alone."""
    name = str(getattr(getattr(call.target, "overloadpacket", None), "__name__", ""))
    if not name.endswith("_") or name.endswith("__") or not call.values:
        return set()
    return {numbers[other] for other in shared.get(id(call.values[0]), ()) if other in numbers} - {
        numbers.get(id(value)) for value in results
    }


def _is_followed(call: Call, results: list[Value]) -> bool:
    """Tell whether what comes out is known again later: not what has no handler, or has none for its form."""
    made_anew = isinstance(call.shapes, list) and len(results) < len(call.shapes)
    return bool(results) and not made_anew and not any(value.opaque for value in results)


def _flat(result: Any) -> Iterator[Value]:
    for value in result if isinstance(result, (list, tuple)) else [result]:
        if isinstance(value, Value):
            yield value
