"""Walk through the operations of an exported program, and let the rules of each say what it means for units.

In place of tensors there are values: labels of units for each element (`value`). What the rules find is written into
the trace log. Operations that write in place are followed as far as nobody else looks at the same memory.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from rekindle.graph.branching.left_out import OPERATION, Piece
from rekindle.graph.branching.unknown_uses import left_out_values
from rekindle.graph.calls.model_output import loss_alone, note_of
from rekindle.graph.calls.needed import INLINED, op_name
from rekindle.graph.constants import Constant
from rekindle.graph.export import first_name
from rekindle.graph.names import canonical
from rekindle.graph.operations import TABLE, Call, units_after
from rekindle.graph.operations.elementwise import SAME_TENSOR
from rekindle.graph.trace_log import Location, TraceLog
from rekindle.graph.value import Value

EXPAND = torch.ops.aten.expand
ZEROS = ("zeros", "zeros_like", "new_zeros")
NO_RESULT = ("_assert", "sym_", "assert", "_check", "record_function")


def walk(piece: Piece, trace_log: TraceLog, names: Mapping[str, str]) -> tuple[str, ...]:
    """Follow the operations of a piece, and say what was passed over: what only the loss depends on.

    What leaves a piece that stands in something left out has readers that are not known.
    """
    loss = loss_alone(piece.program) if piece.border is None else frozenset()
    env = _inputs(piece, trace_log, names)
    results = _flat(_run(piece.program.graph_module, trace_log, env, loss))
    if piece.border is not None:
        trace_log.gap(results, piece.border)
    for value in results if piece.border is None else ():
        trace_log.output(value)
    return (note_of(piece.program, loss),) if loss else ()


def _inputs(piece: Piece, trace_log: TraceLog, names: Mapping[str, str]) -> dict[str, Any]:
    """Return a value for each input of the graph: parameters with their axes, buffers, and the model's own input."""
    program = piece.program
    kind = torch.export.graph_signature.InputKind
    env: dict[str, Any] = {}
    shapes = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        fake = shapes.get(spec.arg.name)
        if not isinstance(fake, torch.Tensor):
            env[spec.arg.name] = getattr(spec.arg, "value", None)
            continue
        shape = tuple(int(size) for size in fake.shape)
        target = f"{piece.path}.{spec.target}" if piece.path else str(spec.target)
        if spec.kind == kind.PARAMETER:
            env[spec.arg.name] = parameter(trace_log, first_name(names, target), shape)
        elif spec.kind == kind.USER_INPUT:
            unseen = piece.border is not None and fake.is_floating_point()
            env[spec.arg.name] = Value(shape, data=True, opaque=frozenset({str(piece.border)} if unseen else ()))
        else:
            stored = program.state_dict.get(str(spec.target), program.constants.get(str(spec.target)))
            buffer = spec.kind == kind.BUFFER
            name = first_name(names, target) if buffer else None
            known = trace_log.constant(stored, target if buffer else "") if isinstance(stored, torch.Tensor) else None
            env[spec.arg.name] = Value(shape, param=name, buffer=buffer, constant=known)
    return env


def parameter(trace_log: TraceLog, name: str, shape: tuple[int, ...]) -> Value:
    """Return the value of a whole parameter: a candidate field along each dimension."""
    dims = tuple(range(len(shape)))
    fields = []
    for d in dims:
        labels = trace_log.axis(name, shape, (d,))
        fields.append(labels.reshape([-1 if n == d else 1 for n in dims]).expand(shape))
    return Value(shape, tuple(fields), param=name, base=dims, along=dims, sources=frozenset({name}))


def _run(module: fx.GraphModule, trace_log: TraceLog, env: dict[str, Any], passed: Set[fx.Node]) -> Any:
    """Walk through a graph, but not through nodes that are passed over; `env` has the values by name and is filled."""
    for node in module.graph.nodes:
        if node in passed:
            continue
        if node.op == "output":
            return _resolve(node.args[0], env)
        if node.op == "get_attr":
            env[node.name] = _attribute(module, str(node.target), trace_log)
        elif node.op == "call_function":
            env[node.name] = _call(node, trace_log, env, passed)
    return None


def _attribute(module: fx.GraphModule, target: str, trace_log: TraceLog) -> Any:
    found = operator.attrgetter(target)(module)
    if not isinstance(found, torch.Tensor):
        return found
    return Value(tuple(found.shape), constant=trace_log.constant(found))


def _call(node: fx.Node, trace_log: TraceLog, env: dict[str, Any], passed: Set[fx.Node]) -> Any:
    args, kwargs = _resolve(tuple(node.args), env), _resolve(dict(node.kwargs), env)
    if node.target is operator.getitem:
        return args[0][args[1]] if isinstance(args[0], (list, tuple)) else args[0]
    name = op_name(node)
    if name in INLINED:
        at = INLINED[name]
        inner = args[at]
        bound = [n.name for n in inner.graph.nodes if n.op == "placeholder"]
        return _run(inner, trace_log, dict(zip(bound, args[at + 1 :], strict=False)), passed)
    if name == OPERATION:
        return left_out_values(trace_log, args[0], Location(args[1], args[2]), _shapes(node))
    in_place = name.endswith("_") and not name.endswith("__")
    location = Location(_module(node), f"aten.{name}")
    target: Any = node.target
    call = Call(trace_log, name.rstrip("_") if in_place else name, target, args, kwargs, _shapes(node), location)
    trace_log.calls.append(call)
    if in_place and len(call.values) > 1 and _is_aliased(node) and not _writes_only_data(node, call, env):
        result = _reshaped(call.trace_log.gap(call.values, location), call.shapes)
    else:
        result = _interpret(call)
    if in_place and isinstance(node.args[0], fx.Node):
        env[node.args[0].name] = result
    return _zeros(result) if name in ZEROS and not _is_written_into(node) else result


def _zeros(value: Value) -> Value:
    """Let it be known that a new tensor is zero: the first state of a recurrent layer, which is in scale with any."""
    return replace(value, constant=Constant(torch.zeros(()).expand(value.shape)))


def _is_written_into(node: fx.Node) -> bool:
    """Tell whether something may be written into a new tensor: directly, or into a view of it."""
    return any(getattr(user.target, "is_view", False) or op_name(user).endswith("_") for user in node.users)


def _is_aliased(node: fx.Node) -> bool:
    """Tell whether what an operation writes into is also seen under another name: a view of it, or what it views."""
    written = node.args[0]
    around = [written, *written.users] if isinstance(written, fx.Node) else []
    return any(getattr(other.target, "is_view", False) for other in around)


def _writes_only_data(node: fx.Node, call: Call, env: dict[str, Any]) -> bool:
    """Tell whether an operation writes data into data: no units are in it, and no value that is known (a constant).

    Then what is written into, and every view of it, depends on the model's input from here on.
    """
    whole = node.args[0]
    while isinstance(whole, fx.Node) and getattr(whole.target, "is_view", False):
        whole = whole.args[0]
    known = env.get(whole.name) if isinstance(whole, fx.Node) else None
    if not isinstance(known, Value) or known.const is not None or any(v.relevant for v in (known, *call.values)):
        return False
    waiting = [whole] if any(value.data for value in call.values) else []
    while waiting:
        seen: Any = waiting.pop()
        env[seen.name] = replace(env[seen.name], data=True)
        waiting += [view for view in seen.users if view.name in env and getattr(view.target, "is_view", False)]
    return True


def _interpret(call: Call) -> Any:
    if call.shapes is None or call.op.startswith(NO_RESULT):
        if not call.op.startswith(NO_RESULT) and any(value.relevant for value in call.values):
            call.trace_log.gap(call.values, call.location)  # a Python number: nobody sees where it goes
        return None
    if not any(value.relevant for value in call.values):  # masks, positions, raw inputs: no units are involved
        data = any(value.data for value in call.values)
        if call.op in SAME_TENSOR and call.values and call.values[0].constant is not None:
            return replace(call.values[0], param=None, buffer=False)
        return _every(call.shapes, lambda shape: Value(shape, data=data))
    if any(0 in value.shape for value in call.values):
        return _without_elements(call)
    result = units_after(call)
    if isinstance(result, Value) and result.opaque and not isinstance(call.shapes, list):
        result = _reshaped(result, call.shapes)
    elif isinstance(result, Value) and isinstance(call.shapes, list):
        result = _every(call.shapes, lambda shape: _reshaped(result, shape))
    return result


def _without_elements(call: Call) -> Any:
    """Interpret an operation on a tensor of size zero, which carries no units.

    What has no elements itself has no units either, and adds none where it is joined to others. A linear layer without
    inputs gives its bias. Of other operations that make something of nothing the rest is not understood.
    """
    data = any(value.data for value in call.values)
    if _is_empty(call.shapes):
        return _every(call.shapes, lambda shape: Value(shape, data=data))
    rest = [value for value in call.values if value.relevant and 0 not in value.shape]
    if call.op == "linear" and rest:
        expanded = replace(call, op="expand", target=EXPAND, args=(rest[0], call.shapes), kwargs={})
        bias = replace(TABLE["expand"].units(expanded), data=data)
        for labels in bias.unit_labels:
            call.trace_log.use(labels, "bias", call.location)
        call.trace_log.tape.append((expanded, bias))
        return bias
    if call.op == "cat":
        joined = [value for value in call.values if 0 not in value.shape]
        result = TABLE["cat"].units(replace(call, args=(joined, *call.args[1:])))
        call.trace_log.tape.append((call, result))
        return result
    return call.trace_log.gap(rest, call.location) if rest else _every(call.shapes, lambda s: Value(s, data=data))


def _is_empty(shapes: Any) -> bool:
    return all(map(_is_empty, shapes)) if isinstance(shapes, list) else 0 in shapes


def _reshaped(value: Value, shape: tuple[int, ...]) -> Value:
    return value if value.shape == shape else Value(shape, data=value.data, leaks=value.leaks, opaque=value.opaque)


def _every(shapes: Any, make: Any) -> Any:
    return [_every(shape, make) for shape in shapes] if isinstance(shapes, list) else make(shapes)


def _shapes(node: fx.Node) -> Any:
    return _shape_of(node.meta.get("val"))


def _shape_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(int(size) for size in value.shape)
    if isinstance(value, (list, tuple)):
        return [_shape_of(item) for item in value]
    return None


def _module(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    return canonical(str(list(stack.values())[-1][0])) if stack else ""


def _resolve(item: Any, env: dict[str, Any]) -> Any:
    return fx.node.map_aggregate(item, lambda n: env.get(n.name) if isinstance(n, fx.Node) else n)


def _flat(results: Any) -> list[Value]:
    if isinstance(results, Value):
        return [results]
    if isinstance(results, Mapping):
        results = list(results.values())
    return [value for item in results for value in _flat(item)] if isinstance(results, (list, tuple)) else []
