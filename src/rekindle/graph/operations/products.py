"""Products with weights: linear layers, matrix products, einsum, convolutions, embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from rekindle.graph.operations.registry import Call, handles
from rekindle.graph.regions import MatrixView
from rekindle.graph.rules import by_head, contract, elementwise, record_weight, side_labels
from rekindle.graph.trace_log import WeightUse
from rekindle.graph.value import Value, compact, distinct, shrink, varying

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@handles("linear")
def linear(call: Call) -> Value:
    """y[..., o] = sum_i x[..., i] w[o, i] + b[o]."""
    x, weight, bias = _activation(call, call.args[0]), call.args[1], call.arg(2, "bias")
    if weight.opaque:
        return call.trace_log.gap(call.values, call.location)
    lead = list(LETTERS[: len(x.shape) - 1])
    return _plus(call, _product(call, x, [*lead, "i"], weight, ["o", "i"][-len(weight.shape) :], call.shapes), bias)


def _activation(call: Call, x: Value) -> Value:
    """Return the input of a layer as an activation, also where it is learned or constant itself."""
    if x.data:
        return x
    fields: tuple[Tensor, ...]
    if x.base is not None and x.is_parameter:
        fields = (side_labels(call.trace_log, x, [len(x.shape) - 1]),)
    else:
        fields = tuple(f for n, f in enumerate(x.unit_labels) if len(x.shape) - 1 in x.dims(n))
    for labels in fields:
        call.trace_log.use(labels, "bias", call.location)
    return Value(x.shape, fields, data=True)


@handles("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner")
def matmul(call: Call) -> Value:
    """The matrix product of the last two dimensions, the others broadcast."""
    return _matmul(call, call.args[0], call.args[1])


@handles("addmm", "baddbmm", "addmv", "addbmm")
def addmm(call: Call) -> Value:
    """A matrix product plus a bias: GPT-2's `Conv1D`."""
    return _plus(call, _matmul(call, call.args[1], call.args[2]), call.args[0])


def _matmul(call: Call, a: Value, b: Value) -> Value:
    la, lb, lo = matmul_letters(len(a.shape), len(b.shape))
    return _product(call, a, la, b, lb, call.shapes, lo)


def matmul_letters(a: int, b: int) -> tuple[list[str], list[str], list[str]]:
    """Return the letters of a matrix product of values with so many dimensions, and of its result."""
    batch = LETTERS[: max(a, b, 2) - 2]
    la = [*batch[len(batch) - max(a - 2, 0) :], *(["x", "s"] if a > 1 else ["s"])]
    lb = [*batch[len(batch) - max(b - 2, 0) :], *(["s", "y"] if b > 1 else ["s"])]
    return la, lb, [*batch, *(["x"] if a > 1 else []), *(["y"] if b > 1 else [])]


@handles("einsum")
def einsum(call: Call) -> Value:
    """Two operands in einsum's notation."""
    values = list(call.args[1])
    if len(values) != 2:
        return call.trace_log.gap(values, call.location)
    la, lb, lo = einsum_letters(call)
    return _product(call, values[0], la, values[1], lb, call.shapes, lo)


def einsum_letters(call: Call) -> tuple[list[str], list[str], list[str]]:
    """Return a letter for each dimension of two operands and of the result."""
    equation, values = call.args[0].replace(" ", ""), list(call.args[1])
    inputs, _, output = equation.partition("->")
    sides = inputs.split(",")
    if "->" not in equation:
        output = "".join(sorted(c for c in set(inputs) - {",", "."} if inputs.count(c) == 1))
    dots = (
        max(len(v.shape) - len(side.replace("...", "")) for v, side in zip(values, sides, strict=True))
        if "..." in inputs
        else 0
    )
    upper = [f"<{n}>" for n in range(dots)]
    la, lb = (_spell(side, upper, len(v.shape)) for side, v in zip(sides, values, strict=True))
    return la, lb, _spell(output, upper, len(call.shapes))


def _spell(side: str, upper: list[str], ndim: int) -> list[str]:
    if "..." not in side:
        return list(side)
    before, after = side.split("...")
    count = ndim - len(before) - len(after)
    return [*before, *upper[len(upper) - count :], *after]


def _product(
    call: Call, a: Value, la: Sequence[str], b: Value, lb: Sequence[str], shape: Sequence[int], lo: Sequence[str] = ()
) -> Value:
    lo = list(lo) or [*la[:-1], *[letter for letter in lb if letter not in la]]
    result = contract(call.trace_log, a, la, b, lb, lo, shape, call.location)
    for x, lx, weight, lw in ((a, la, b, lb), (b, lb, a, la)):
        if x.data and not weight.data and weight.sources:
            _note_weight(call, x, list(lx), weight, list(lw), lo)
    if a.data and b.data:
        _attention_roles(call, a, b, list(lb), lo)
    return result


def _note_weight(call: Call, x: Value, lx: list[str], weight: Value, lw: list[str], lo: Sequence[str]) -> None:
    ins = [d for d, letter in enumerate(lw) if letter in lx and letter not in lo]
    outs = [d for d, letter in enumerate(lw) if letter in lo and letter not in lx]
    if ins and outs:
        record_weight(call.trace_log, weight, outs, ins, x, call.location)


def _attention_roles(call: Call, a: Value, b: Value, lb: list[str], lo: Sequence[str]) -> None:
    """Softmaxed scores times values: now it is known what were queries, keys and values."""
    if a.product is None or not a.product.softmaxed:
        return
    call.trace_log.roles += [("q", labels) for labels in a.product.left] + [("k", labels) for labels in a.product.right]
    for labels in b.unit_labels:
        along = varying(labels)
        inside = [lb[d] == lo[-1] for d in range(len(lb))]
        if any(inside[d] for d in along):
            call.trace_log.roles.append(("v", by_head(labels, inside)))


def _plus(call: Call, value: Value, bias: Value | None) -> Value:
    return value if bias is None else elementwise(call.trace_log, [value, bias], value.shape, "add", call.location)


@handles("conv1d", "conv2d", "conv3d", "convolution", "_convolution")
def convolution(call: Call) -> Value:
    """Channels of the input meet the weight's second dimension, group by group."""
    if call.op in ("convolution", "_convolution") and call.arg(6, "transposed", False):
        return _transposed(call, int(call.arg(8, "groups", 1)))
    groups = call.arg(8 if call.op in ("convolution", "_convolution") else 6, "groups", 1)
    weight: Value = call.args[1]
    out, in_ = weight.shape[0], weight.shape[1]
    view = (groups, out // groups, in_, *weight.shape[2:])
    return _convolve(call, view, out_dim=1, in_dim=2, groups=groups)


@handles("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(call: Call) -> Value:
    """As a convolution, with input and output of the weight exchanged."""
    return _transposed(call, int(call.arg(6, "groups", 1)))


def _transposed(call: Call, groups: int) -> Value:
    weight: Value = call.args[1]
    view = (groups, weight.shape[0] // groups, weight.shape[1], *weight.shape[2:])
    return _convolve(call, view, out_dim=2, in_dim=1, groups=groups)


def _convolve(call: Call, view: tuple[int, ...], out_dim: int, in_dim: int, groups: int) -> Value:
    trace_log, weight, bias = call.trace_log, call.args[1], call.arg(2, "bias")
    x = _activation(call, call.args[0])
    channel = len(x.shape) - (len(view) - 2)  # an image may come without a batch dimension
    whole = weight.base is not None and weight.is_parameter
    if weight.opaque or not (whole or (groups == 1 and weight.unit_labels)):
        return trace_log.gap(call.values, call.location)
    read = _read_channels(x, channel)
    in_sides = [_side(call, weight, view, in_dim, copy) for copy in range(max(len(read), 1))]
    out_labels = _side(call, weight, view, out_dim)
    for labels, in_labels in zip(read, in_sides, strict=False):
        trace_log.tie(in_labels.reshape([-1 if d == channel else 1 for d in range(len(x.shape))]), labels, "read")
        trace_log.use(in_labels, "read", call.location)
    trace_log.use(out_labels, "weight", call.location)
    trace_log.read(x, read)
    _convolution_weight(call, x, weight, view, (out_dim, in_dim), (out_labels, in_sides[0]))
    others = [labels for labels in x.unit_labels if not any(labels is r for r in read)]
    out = out_labels.reshape([-1 if d == channel else 1 for d in range(len(x.shape))]).expand(tuple(call.shapes))
    leaked = distinct(*others, *([x.leaks] if not read else []))
    trace_log.passed.append(leaked)
    return _plus_channels(call, Value(tuple(call.shapes), (out,), data=True, leaks=leaked), bias, channel)


def _read_channels(x: Value, channel: int) -> list[Tensor]:
    """Return the fields along the channels; a single unit is read by a layer that reads no others."""
    along = [labels for labels in x.unit_labels if channel in varying(labels)]
    return along or [labels for labels in x.unit_labels if not varying(labels)]


def _side(call: Call, weight: Value, view: tuple[int, ...], dim: int, copy: int = 0) -> Tensor:
    """Return the labels of one side of a kernel: dimension `dim` of the view (groups, ...), groups included."""
    if weight.base is None or not weight.is_parameter:
        return _flat(weight.labels_over(dim - 1))
    if view[0] == 1 or dim == 1:  # the stored dimension 0 counts groups and what follows them
        return _flat(side_labels(call.trace_log, weight, [dim - 1], copy))
    return call.trace_log.axis(str(weight.param), view, (0, dim), copy)


def _flat(labels: Tensor | None) -> Tensor:
    assert labels is not None
    return compact(shrink(labels)).reshape(-1)


def _convolution_weight(
    call: Call, x: Value, weight: Value, view: tuple[int, ...], dims: tuple[int, int], labels: tuple[Tensor, Tensor]
) -> None:
    out, in_ = dims
    kernel = tuple(range(3, len(view)))
    tensor = call.trace_log.axis_of(int(labels[0][0])).tensor
    call.trace_log.weights.append(
        WeightUse(
            tensor=tensor,
            computed=weight.param is None,
            view=MatrixView(view, (out,), (in_,), (0, *kernel))
            if view[0] > 1
            else MatrixView(weight.shape, (out - 1,), (in_ - 1,), tuple(d - 1 for d in kernel)),
            out_labels=labels[0],
            in_labels=labels[1],
            reads_units=x.relevant,
            embedding=False,
            location=call.location,
            gain=call.trace_log.gains.get(tensor),
        )
    )


def _plus_channels(call: Call, value: Value, bias: Value | None, channel: int) -> Value:
    if bias is None:
        return value
    shape = tuple(-1 if d == channel else 1 for d in range(len(value.shape)))
    shaped = tuple(labels.reshape(shape) for labels in bias.unit_labels)
    full = tuple(value.shape[d] if d == channel else 1 for d in range(len(value.shape)))
    return _plus(call, value, replace(bias, shape=full, unit_labels=shaped, base=None, along=None))


@handles("embedding", "embedding_bag")
def embedding(call: Call) -> Any:
    """Each row of the table is a vector of new units."""
    table: Value = call.args[0]
    if table.base != (0, 1) or table.data or call.op == "embedding_bag":
        return call.trace_log.gap(call.values, call.location)
    labels = _flat(side_labels(call.trace_log, table, [1]))
    call.trace_log.use(labels, "weight", call.location)
    call.trace_log.weights.append(
        WeightUse(
            tensor=str(table.param),
            computed=False,
            view=MatrixView(table.shape, (1,), (0,)),
            out_labels=labels,
            in_labels=_flat(side_labels(call.trace_log, table, [0])),
            reads_units=False,
            embedding=True,
            location=call.location,
        )
    )
    return Value(tuple(call.shapes), (labels.expand(tuple(call.shapes)),), data=True)


@handles("_weight_norm", "_weight_norm_interface")
def weight_norm(call: Call) -> Any:
    """W = g v/|v|: the direction stands for the weight, the gain runs along its output axis."""
    direction, gain = call.args[0], call.args[1]
    dim = int(call.arg(2, "dim", 0))
    if not (direction.is_parameter and gain.is_parameter and direction.base is not None):
        return call.trace_log.gap(call.values, call.location)
    call.trace_log.gains[str(direction.param)] = (str(gain.param), dim)
    if dim >= 0 and gain.base is not None:
        labels = call.trace_log.axis(str(gain.param), gain.shape, (dim,))
        call.trace_log.tie(labels, _flat(side_labels(call.trace_log, direction, [dim])), "composed")
    call.trace_log.no_axis(gain, f"scales a weight along an axis without units at {call.location}")
    weight = replace(direction)  # a value of its own: the weight is scaled by the gain, the direction is not
    return [weight, Value(gain.shape)] if isinstance(call.shapes, list) else weight
