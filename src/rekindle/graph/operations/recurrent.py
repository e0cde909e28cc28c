"""Recurrent layers: `nn.LSTM`, `nn.GRU`, `nn.RNN` as single operations, and their cells.

A unit of a recurrent layer is one number of its hidden state. All its gates write it: rows j, H + j, 2H + j, ... of
`weight_ih`, of `weight_hh` and of both biases are unit j. Column j of `weight_hh` reads it at the next step of time, as
does whatever reads the layer's output. A projection (`proj_size`) puts a second kind of units behind the first: the
cell's units are read by `weight_hr`, and what that writes is the hidden state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rekindle.graph.operations.products import activation
from rekindle.graph.operations.table import Call, define, non_homogeneous
from rekindle.graph.regions import MatrixView
from rekindle.graph.rules import elementwise
from rekindle.graph.scaling.scale_exponents import UNCHANGED, constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.trace_log import TraceLog, WeightUse
from rekindle.graph.value import Value, compact, distinct, partly, shrink, varying

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
CELLS = {f"{name}_cell": gates for name, gates in GATES.items()}


@dataclass(frozen=True, eq=False)
class Layer:
    """The parameters of one layer in one direction."""

    gates: int
    weight_ih: Value  # [gates * hidden, input]
    weight_hh: Value  # [gates * hidden, state]
    biases: tuple[Value, ...] = ()  # each [gates * hidden]
    weight_hr: Value | None = None  # [state, hidden]

    @property
    def hidden(self) -> int:
        """Number of hidden units."""
        return self.weight_ih.shape[0] // self.gates

    def is_understood(self) -> bool:
        """Tell whether all are parameters, or computed from parameters in a way that keeps their axes."""
        projections = (self.weight_hr,) if self.weight_hr is not None else ()
        return all(map(_has_axes, (self.weight_ih, self.weight_hh, *self.biases, *projections)))


def _has_axes(value: Value) -> bool:
    along = [value.labels_over(d) for d in range(len(value.shape))]
    return not value.data and not value.opaque and bool(value.sources) and all(each is not None for each in along)


def _cell_layer(call: Call) -> Layer:
    given = [*call.args[2:], *(call.kwargs.get(name) for name in ("b_ih", "b_hh"))]
    return Layer(CELLS[call.op], given[0], given[1], tuple(v for v in given[2:] if isinstance(v, Value)))


@dataclass(frozen=True, eq=False)
class Stack:
    """What a recurrent layer that runs over whole sequences is called with."""

    x: Value  # [time, batch, features], or batch first
    states: tuple[Value, ...]  # the first ones, [layers * directions, batch, state]: hidden, and of an LSTM the cell's
    layers: tuple[Layer, ...]  # first layer forward (and backward), second layer forward (and backward), ...
    directions: int

    def is_understood(self) -> bool:
        """Tell whether all weights are."""
        return all(layer.is_understood() for layer in self.layers)


def _stack(call: Call) -> Stack | None:
    """Return the operands in order; None for packed sequences, which a trace never meets (see `graph.calls.packed`)."""
    if getattr(call.target, "_overloadname", "") == "data":
        return None
    x, states, flat, biased, _, _, _, both = call.args[:8]
    states = tuple(states) if isinstance(states, (list, tuple)) else (states,)
    projected = call.op == "lstm" and states[0].shape[-1] != states[1].shape[-1]
    size = 2 + 2 * bool(biased) + projected
    chunks = [flat[n : n + size] for n in range(0, len(flat), size)]
    layers = tuple(
        Layer(GATES[call.op], c[0], c[1], tuple(c[2 : 4 if biased else 2]), c[-1] if projected else None)
        for c in chunks
    )
    return Stack(x, states, layers, 2 if both else 1)


# Units ----------------------------------------------------------------------------------------------------------------


def recurrent(call: Call) -> Any:
    """Layer by layer; both directions read the same, and what follows reads both."""
    stack = _stack(call)
    if stack is None or not stack.is_understood():
        return call.trace_log.gap(call.values, call.location)
    x = activation(call, stack.x)
    ends: list[tuple[Value, Value]] = []
    for first in range(0, len(stack.layers), stack.directions):
        pair = range(first, first + stack.directions)
        ends += [_run(call, x, stack.layers[n], [_one_state(call.trace_log, s, n) for s in stack.states]) for n in pair]
        x = _side_by_side([ends[n][0] for n in pair], call.shapes[0])
    last = [_stacked(values, shape) for values, shape in zip(zip(*ends, strict=True), call.shapes[1:], strict=False)]
    return [x, *last]


def _run(call: Call, x: Value, layer: Layer, states: Sequence[Value]) -> tuple[Value, Value]:
    """Return hidden state and cell of a layer over time: what it is given first, it later gives itself."""
    cell = _written(call, x, layer)
    cell = _joined(call, [cell, *states[1:]])
    state = _projected(call, cell, layer)
    state = _joined(call, [state, states[0]])
    leaks = _fed_back(call, state, layer, cell)
    return replace(state, leaks=distinct(state.leaks, leaks)), replace(cell, leaks=distinct(cell.leaks, leaks))


def cell(call: Call) -> Any:
    """One step of time: the state comes from wherever the model has it."""
    layer = _cell_layer(call)
    states = list(call.args[1]) if isinstance(call.args[1], (list, tuple)) else [call.args[1]]
    if not layer.is_understood():
        return call.trace_log.gap(call.values, call.location)
    found = _written(call, activation(call, call.args[0]), layer)
    kept = {"lstm_cell": states[1:], "gru_cell": states}.get(call.op, [])  # what a gate lets through as it is
    found = _joined(call, [found, *kept])
    leaks = _fed_back(call, activation(call, states[0]), layer, found)
    shapes = call.shapes if isinstance(call.shapes, list) else [call.shapes]
    results = [_spread(replace(found, leaks=distinct(found.leaks, leaks)), shape) for shape in shapes]
    return results if isinstance(call.shapes, list) else results[0]


def _written(call: Call, x: Value, layer: Layer) -> Value:
    """Return the units [hidden] that the gates write from an input."""
    rows, leaks = _product(call, x, layer.weight_ih, layer.gates)
    gates = rows.reshape(layer.gates, -1)
    for gate in gates[1:]:
        call.trace_log.tie(gates[0], gate, "mul")
    for bias in layer.biases:
        labels = _rows(bias)
        call.trace_log.tie(rows, labels, "param")
        call.trace_log.use(labels, "bias", call.location)
    return Value((layer.hidden,), (gates[0],), data=True, leaks=leaks)


def _projected(call: Call, cell: Value, layer: Layer) -> Value:
    if layer.weight_hr is None:
        return cell
    rows, leaks = _product(call, cell, layer.weight_hr, 1)
    return Value((layer.weight_hr.shape[0],), (rows,), data=True, leaks=leaks)


def _fed_back(call: Call, state: Value, layer: Layer, written: Value) -> Tensor:
    """Let `weight_hh` read a state and write the units; return what leaks into them on this way."""
    rows, leaks = _product(call, state, layer.weight_hh, layer.gates)
    call.trace_log.tie(written.unit_labels[0].expand(layer.gates, -1), rows.reshape(layer.gates, -1), "add")
    return leaks


def _joined(call: Call, values: Sequence[Value]) -> Value:
    """Tie a state of so many units to others that stand in for it: learned, given, or another layer's last."""
    ours, others = values[0], [value for value in values[1:] if value.relevant]
    if not others:
        return ours
    shape = others[0].shape
    joined = elementwise(call.trace_log, [_spread(ours, shape), *others], shape, "other", call.location)
    return replace(ours, leaks=distinct(ours.leaks, joined.leaks), opaque=ours.opaque | joined.opaque)


def _product(call: Call, x: Value, weight: Value, gates: int) -> tuple[Tensor, Tensor]:
    """Let a weight [gates * out, in] read the last dimension of a value; return labels of its rows, and what leaks."""
    log, last = call.trace_log, len(x.shape) - 1
    read = [labels for labels in x.unit_labels if last in varying(labels)]
    read = read or [labels for labels in x.unit_labels if not varying(labels)]  # a single unit
    rows = _rows(weight)
    for copy, labels in enumerate(read):
        columns = _columns(log, weight, copy)
        log.tie(columns, labels, "read")
        log.use(columns, "read", call.location)
    log.use(rows, "weight", call.location)
    log.read(x, read)
    _note_weight(call, x, weight, gates)
    others = [labels for labels in x.unit_labels if not any(labels is each for each in read)]
    leaked = distinct(*others, *([x.leaks] if not read or partly(read) else []))
    log.passed.append(leaked)
    return rows, leaked


def _rows(value: Value) -> Tensor:
    """Return the labels along the first dimension, gate by gate."""
    return _flat(value, 0)


def _columns(log: TraceLog, weight: Value, copy: int) -> Tensor:
    if weight.base is None or not weight.is_parameter:
        return _flat(weight, 1)
    return log.axis(str(weight.param), weight.shape, (1,), copy)


def _view(value: Value, gates: int) -> tuple[int, ...]:
    return (gates, value.shape[0] // gates, *value.shape[1:]) if gates > 1 else value.shape


def _flat(value: Value, dim: int) -> Tensor:
    labels = value.labels_over(dim)
    assert labels is not None  # see `Layer.is_understood`
    return compact(shrink(labels)).reshape(-1)


def _note_weight(call: Call, x: Value, weight: Value, gates: int) -> None:
    """Write down the matrices: one for each gate, which are apart in all that concerns their spectra."""
    log, whole = call.trace_log, weight.base is not None and weight.is_parameter
    rows, columns = _rows(weight), _columns(log, weight, 0)
    tensor = log.axis_of(int(rows[0])).tensor
    if log.axis_of(int(columns[0])).tensor != tensor:
        return
    shape = _view(weight, gates)
    view = MatrixView(shape, (1,), (2,), (0,)) if gates > 1 else MatrixView(shape, (0,), (1,))
    log.weights.append(
        WeightUse(
            tensor=tensor,
            computed=not whole,
            view=view,
            out_labels=rows,
            in_labels=columns,
            reads_units=x.relevant,
            embedding=False,
            location=call.location,
            gain=log.gains.get(tensor),
        )
    )


def _one_state(log: TraceLog, states: Value, number: int) -> Value:
    """Return one layer's part [batch, state] of the first states of all layers."""
    fields = states.unit_labels if states.data else _per_layer(log, states)
    chosen = tuple(shrink(labels[number]) for labels in fields)
    return replace(states, shape=states.shape[1:], unit_labels=chosen, param=None, base=None, along=None)


def _per_layer(log: TraceLog, states: Value) -> Sequence[Tensor]:
    """Return the labels of learned states so that each layer has its own: of layer and unit taken together."""
    layers, units = states.labels_over(0), states.labels_over(2)
    if states.shape[0] == 1 or layers is None or units is None or layers is units:
        return states.unit_labels
    one, other = (log.axis_of(int(distinct(each)[0])) for each in (layers, units))
    if (one.tensor, one.view) != (other.tensor, other.view):
        return states.unit_labels
    labels = log.axis(one.tensor, one.view, one.dims + other.dims)
    places = (compact(layers) - one.start) * other.size + (compact(units) - other.start)
    return (labels[places].expand(states.shape),)


def _side_by_side(values: Sequence[Value], shape: Sequence[int]) -> Value:
    """Return what both directions give, one after the other along the last dimension."""
    labels = torch.cat([value.unit_labels[0] for value in values])
    return _spread(_merged(values, labels), (*shape[:-1], len(labels)))


def _stacked(values: Sequence[Value], shape: Sequence[int]) -> Value:
    """Return the last states [layers * directions, batch, state]."""
    labels = torch.stack([value.unit_labels[0] for value in values])[:, None]
    return _spread(_merged(values, labels), shape)


def _merged(values: Sequence[Value], labels: Tensor) -> Value:
    opaque = frozenset().union(*(value.opaque for value in values))
    return Value(tuple(labels.shape), (labels,), data=True, leaks=distinct(*(v.leaks for v in values)), opaque=opaque)


def _spread(value: Value, shape: Sequence[int]) -> Value:
    fields = tuple(labels.expand(tuple(shape)) for labels in value.unit_labels)
    return replace(value, shape=tuple(shape), unit_labels=fields)


# Scale ----------------------------------------------------------------------------------------------------------------


def recurrent_scale(walk: Walk, call: Call) -> Any:
    """What enters a sigmoid or tanh stays as it is; a ReLU network over time is homogeneous, with its first state."""
    stack = _stack(call)
    if stack is None or not stack.is_understood():
        return non_homogeneous(walk, call)
    x = walk.field(stack.x)
    ends: list[tuple[Tensor, Tensor]] = []
    for first in range(0, len(stack.layers), stack.directions):
        pair = range(first, first + stack.directions)
        ends += [_run_scale(walk, call, x, stack.layers[n], [walk.field(s)[n] for s in stack.states]) for n in pair]
        x = torch.cat([ends[n][0] for n in pair]).expand(tuple(call.shapes[0]))
    last = [torch.stack(each)[:, None] for each in zip(*ends, strict=True)]
    return [x, *(each.expand(tuple(shape)) for each, shape in zip(last, call.shapes[1:], strict=False))]


def _run_scale(walk: Walk, call: Call, x: Tensor, layer: Layer, states: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the exponents [state] of the hidden state and [hidden] of the cell."""
    rows = _gates_scale(walk, x, layer)
    if call.op == "rnn_relu":
        state = walk.exponents.tie(rows, _over_batch(walk, states[0]))
        state = walk.exponents.tie(state, _product_scale(walk, state, layer.weight_hh))
        return state.expand(layer.hidden), state.expand(layer.hidden)
    cell = _fixed(walk, call, layer, rows, states[1:])
    state = cell if layer.weight_hr is None else _product_scale(walk, cell, layer.weight_hr)
    state = walk.exponents.tie(state, _over_batch(walk, states[0]))
    walk.exponents.fix(_product_scale(walk, state, layer.weight_hh))
    return state, cell


def cell_scale(walk: Walk, call: Call) -> Any:
    """One step of the same."""
    layer = _cell_layer(call)
    if not layer.is_understood():
        return non_homogeneous(walk, call)
    states = [walk.field(v) for v in (call.args[1] if isinstance(call.args[1], (list, tuple)) else call.args[1:2])]
    rows = _gates_scale(walk, walk.field(call.args[0]), layer)
    again = _product_scale(walk, states[0], layer.weight_hh)
    if call.op == "rnn_relu_cell":
        return walk.exponents.tie(rows, again).expand(tuple(call.shapes))
    walk.exponents.fix(again)
    cell = _fixed(walk, call, layer, rows, {"lstm_cell": states[1:], "gru_cell": states}.get(call.op, []))
    results = [cell.expand(tuple(shape)) for shape in (call.shapes if isinstance(call.shapes, list) else [call.shapes])]
    return results if isinstance(call.shapes, list) else results[0]


def _gates_scale(walk: Walk, x: Tensor, layer: Layer) -> Tensor:
    """Return the exponents [gates * hidden] of what the gates are given by the input and the biases."""
    return walk.exponents.tie(_product_scale(walk, x, layer.weight_ih), *(walk.field(bias) for bias in layer.biases))


def _fixed(walk: Walk, call: Call, layer: Layer, rows: Tensor, kept: Sequence[Tensor]) -> Tensor:
    """Keep what enters the gates, and states that are let through; return the exponents of what comes out."""
    units = _rows(layer.weight_ih)
    walk.curve([Value(tuple(units.shape), (units,), data=True)], call.location)
    for labels in (rows, *kept):
        walk.exponents.fix(labels)
    return constant(UNCHANGED, (layer.hidden,))


def _product_scale(walk: Walk, x: Tensor, weight: Value) -> Tensor:
    """Return the exponents [out] of a weight times a value, the same for every sample and step of time."""
    terms = walk.exponents.product([_over_batch(walk, x), walk.field(weight)], [1.0, 1.0])
    return walk.exponents.settle(terms, [1]).reshape(-1).expand(weight.shape[0])


def _over_batch(walk: Walk, labels: Tensor) -> Tensor:
    """Return the exponents along the last dimension, with all samples and steps of time in proportion."""
    return walk.exponents.settle(labels, range(labels.ndim - 1)).reshape(-1)


define(GATES, units=recurrent, scale=recurrent_scale)
define(CELLS, units=cell, scale=cell_scale)
