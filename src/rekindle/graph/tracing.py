"""Trace a model into its unit graph."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from rekindle.errors import GraphError
from rekindle.graph.assemble import assemble
from rekindle.graph.cache import of_model, recall, remember
from rekindle.graph.constants import Constant
from rekindle.graph.export import aliases_of, canonical_names, first_name
from rekindle.graph.initializers import gains_of
from rekindle.graph.left_out import OPERATION, Piece
from rekindle.graph.model_output import loss_alone, note_of
from rekindle.graph.modules import parameters_of
from rekindle.graph.names import canonical
from rekindle.graph.operations import TABLE, Call, units_after
from rekindle.graph.operations.elementwise import SAME_TENSOR
from rekindle.graph.plain import not_plain_in, shapes_of
from rekindle.graph.programs import programs_of
from rekindle.graph.scan import scan
from rekindle.graph.surroundings import restored_on_failure
from rekindle.graph.trace_key import Key, trace_key
from rekindle.graph.trace_log import Location, TraceLog
from rekindle.graph.unit_graph import UnitGraph
from rekindle.graph.unknown_uses import left_out_values, note_gaps, note_left_out
from rekindle.graph.unwrap import bare
from rekindle.graph.value import Value

INLINED = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}  # operation: position of its subgraph
EXPAND = torch.ops.aten.expand
ZEROS = ("zeros", "zeros_like", "new_zeros")
NO_RESULT = ("_assert", "sym_", "assert", "_check", "record_function")


def trace(model: nn.Module, example: Any, *, strict: bool = True, fresh: bool = False) -> UnitGraph:
    """Find weights and unit groups of a model by following what it computes for an example.

    A model is traced once. The trace is found again, by whoever asks for it, until something changes that it depends
    on: modules, hooks, attributes, configurations, classes and their functions, what these close over, shapes, types
    and ties of parameters, values of constants that pick units, the shapes and types of the example, and torch's modes.
    Weights may change as they like. What cannot be seen from the model are globals that its functions read (a flag or
    a function of a Python module), files and the environment: after such a change say `fresh=True`. A model that
    branches on data is traced each time.

    Args:
        model: Any module, in its wrappers (see `unwrap.bare`) or not; it is not changed.
        example: A tensor, a tuple of positional arguments, or a dict of keyword arguments for `model`. The loss
            that a model gives for a batch with `labels` is no part of the graph, and the graph's notes say so.
        strict: Raise where something is not understood, or branches on data so that `torch.export` cannot follow;
            otherwise leave those parts out and list them (see `left_out`). Where nothing can be followed at all, the
            weights are told by their layers' types and names, as without an example.
        fresh: Trace anew, whatever was found before; what is found takes its place.

    Raises:
        GraphError: The model does not run with this example, is sharded, or (with `strict`) has parts that cannot be
            followed or are not understood.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> [(group.name, group.size, group.kind) for group in trace(net, torch.zeros(1, 4)).groups]
        [('0', 3, 'hidden'), ('2', 2, 'output')]
    """
    model = bare(model)
    key = trace_key(model, example)
    graph = None if fresh else recall(model, key)
    if graph is None:
        with restored_on_failure(model):
            graph = _traced(model, example, strict, key)
    if strict:
        _refuse_gaps(graph.not_understood)
    return of_model(graph, model).leaving_out(not_plain_in(model))


def _traced(model: nn.Module, example: Any, strict: bool, key: Key | None) -> UnitGraph:
    """Return the graph without the initializers of modules, which `cache.of_model` adds, and remember it.

    A model that is followed in pieces branches on data, and may branch otherwise next time: that is not remembered.
    """
    programs = programs_of(model, example, strict=strict)
    trace_log = TraceLog()
    names = canonical_names(model)
    notes = programs.notes
    for piece in programs.pieces:
        notes += _walk(piece, trace_log, names)
    note_gaps(trace_log)
    if programs.found is not None:
        note_left_out(trace_log, model, programs.found, names)
    if programs.found is not None and not trace_log.weights:
        return replace(scan(model), not_understood=tuple(trace_log.not_understood), notes=notes)
    found = assemble(trace_log, shapes_of(parameters_of(model)), aliases_of(names), {}, gains_of(model))
    graph = replace(found, notes=notes)
    if programs.found is None:
        remember(model, key, graph, trace_log.constants)
    return graph


def _refuse_gaps(parts: Sequence[str]) -> None:
    if parts:
        raise GraphError(
            expected="operations whose meaning for units is known",
            got="; ".join(parts[:8]) + (f"; and {len(parts) - 8} more" if len(parts) > 8 else ""),
            fix="trace with strict=False to leave these parts out (the graph says which), or trace a part of the model",
        )


def _walk(piece: Piece, trace_log: TraceLog, names: Mapping[str, str]) -> tuple[str, ...]:
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


def _run(module: fx.GraphModule, trace_log: TraceLog, env: dict[str, Any], passed: Set[str] = frozenset()) -> Any:
    """Walk through a graph, but not through nodes that are passed over; `env` has the values by name and is filled."""
    for node in module.graph.nodes:
        if node.name in passed:
            continue
        if node.op == "output":
            return _resolve(node.args[0], env)
        if node.op == "get_attr":
            env[node.name] = _attribute(module, str(node.target), trace_log)
        elif node.op == "call_function":
            env[node.name] = _call(node, trace_log, env)
    return None


def _attribute(module: fx.GraphModule, target: str, trace_log: TraceLog) -> Any:
    found = operator.attrgetter(target)(module)
    if not isinstance(found, torch.Tensor):
        return found
    return Value(tuple(found.shape), constant=trace_log.constant(found))


def _call(node: fx.Node, trace_log: TraceLog, env: dict[str, Any]) -> Any:
    args, kwargs = _resolve(tuple(node.args), env), _resolve(dict(node.kwargs), env)
    if node.target is operator.getitem:
        return args[0][args[1]] if isinstance(args[0], (list, tuple)) else args[0]
    name = _op_name(node)
    if name in INLINED:
        at = INLINED[name]
        inner = args[at]
        bound = [n.name for n in inner.graph.nodes if n.op == "placeholder"]
        return _run(inner, trace_log, dict(zip(bound, args[at + 1 :], strict=False)))
    if name == OPERATION:
        return left_out_values(trace_log, args[0], Location(args[1], args[2]), _shapes(node))
    in_place = name.endswith("_") and not name.endswith("__")
    location = Location(_module(node), f"aten.{name}")
    target: Any = node.target
    call = Call(trace_log, name.rstrip("_") if in_place else name, target, args, kwargs, _shapes(node), location)
    trace_log.calls.append(call)
    if in_place and len(call.values) > 1 and _is_aliased(node) and not _writes_only_data(node, call, env):
        result = call.trace_log.gap(call.values, location)
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
    return any(getattr(user.target, "is_view", False) or _op_name(user).endswith("_") for user in node.users)


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


def _op_name(node: fx.Node) -> str:
    packet = getattr(node.target, "overloadpacket", None)
    if packet is not None:
        return str(packet.__name__)
    return str(getattr(node.target, "__name__", node.target))


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
