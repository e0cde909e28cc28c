"""How a handler is found: by the name of the ATen operation, without overload and without the in-place underscore."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rekindle.graph.trace_log import Location, TraceLog
from rekindle.graph.value import Value


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

    def __post_init__(self) -> None:
        """Write it down, whether it has a handler or not."""
        self.trace_log.calls.append(self)

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


Handler = Callable[[Call], Any]
HANDLERS: dict[str, Handler] = {}


def handles(*ops: str) -> Callable[[Handler], Handler]:
    """Register a handler for operations; what it was called with goes on the tape of the trace log."""

    def register(handler: Handler) -> Handler:
        @functools.wraps(handler)
        def taped(call: Call) -> Any:
            result = handler(call)
            call.trace_log.tape.append((call, result))
            return result

        for op in ops:
            HANDLERS[op] = taped
        return handler

    return register
