"""Convolutions, also grouped and transposed.

Units: channels of the input meet the weight's input dimension, group by group; what comes out has the weight's output
channels. Positions are no units. Scale: every term of the sum over channels and kernel keeps its proportion.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from rekindle.graph.operations.products import activation, plus
from rekindle.graph.operations.table import Call, define, note_product
from rekindle.graph.regions import MatrixView
from rekindle.graph.rules import side_labels
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.trace_log import WeightUse
from rekindle.graph.value import Value, distinct, flat, partly, varying


def convolution(call: Call) -> Value:
    """Units of a convolution: channels of the input meet the weight's second dimension, group by group."""
    if call.op in ("convolution", "_convolution") and call.arg(6, "transposed", False):
        return _transposed(call, int(call.arg(8, "groups", 1)))
    groups = call.arg(8 if call.op in ("convolution", "_convolution") else 6, "groups", 1)
    weight: Value = call.args[1]
    out, in_ = weight.shape[0], weight.shape[1]
    view = (groups, out // groups, in_, *weight.shape[2:])
    return _convolve(call, view, out_dim=1, in_dim=2, groups=groups)


def conv_transpose(call: Call) -> Value:
    """Units of a transposed convolution: as of a convolution, with input and output of the weight exchanged."""
    return _transposed(call, int(call.arg(6, "groups", 1)))


def scaled_convolution(walk: Walk, call: Call) -> Tensor:
    """Scale of a convolution: every term of the sum keeps its proportion."""
    return _scaled(walk, call, int(call.arg(6, "groups", 1)), transposed=False)


def scaled_transpose(walk: Walk, call: Call) -> Tensor:
    """Scale of a transposed convolution: input and output of the weight are exchanged."""
    return _scaled(walk, call, int(call.arg(6, "groups", 1)), transposed=True)


def scaled_either(walk: Walk, call: Call) -> Tensor:
    """Scale of the operation that is told whether it is transposed."""
    return _scaled(walk, call, int(call.arg(8, "groups", 1)), transposed=bool(call.arg(6, "transposed", False)))


def _transposed(call: Call, groups: int) -> Value:
    weight: Value = call.args[1]
    view = (groups, weight.shape[0] // groups, weight.shape[1], *weight.shape[2:])
    return _convolve(call, view, out_dim=2, in_dim=1, groups=groups)


def _convolve(call: Call, view: tuple[int, ...], out_dim: int, in_dim: int, groups: int) -> Value:
    trace_log, weight, bias = call.trace_log, call.args[1], call.arg(2, "bias")
    x = activation(call, call.args[0])
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
    leaked = distinct(*others, *([x.leaks] if not read or partly(read) else []))
    trace_log.passed.append(leaked)
    return _plus_channels(call, Value(tuple(call.shapes), (out,), data=True, leaks=leaked), bias, channel)


def _read_channels(x: Value, channel: int) -> list[Tensor]:
    """Return the fields along the channels; a single unit is read by a layer that reads no others."""
    along = [labels for labels in x.unit_labels if channel in varying(labels)]
    return along or [labels for labels in x.unit_labels if not varying(labels)]


def _side(call: Call, weight: Value, view: tuple[int, ...], dim: int, copy: int = 0) -> Tensor:
    """Return the labels of one side of a kernel: dimension `dim` of the view (groups, ...), groups included."""
    if weight.base is None or not weight.is_parameter:
        return flat(weight.labels_over(dim - 1))
    if view[0] == 1 or dim == 1:  # the stored dimension 0 counts groups and what follows them
        return flat(side_labels(call.trace_log, weight, [dim - 1], copy))
    return call.trace_log.axis(str(weight.param), view, (0, dim), copy)


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
    return plus(call, value, replace(bias, shape=full, unit_labels=shaped, base=None, along=None))


def _scaled(walk: Walk, call: Call, groups: int, transposed: bool) -> Tensor:
    x, weight, bias = call.args[0], call.args[1], call.arg(2, "bias")
    kernel = len(weight.shape) - 2
    channel = len(x.shape) - kernel - 1
    pixels = walk.exponents.settle(walk.field(x), range(channel + 1, len(x.shape)))
    taps = walk.exponents.settle(walk.field(weight), range(2, len(weight.shape))).reshape(weight.shape[:2])
    batch = x.shape[0] if channel else 1
    inputs = pixels.reshape(batch, groups, 1, -1)  # [batch, groups, out, in]
    matrix = taps.reshape(groups, -1, weight.shape[1])  # [groups, out, in], exchanged if transposed
    terms = walk.exponents.product([inputs, (matrix.transpose(1, 2) if transposed else matrix)[None]], [1.0, 1.0])
    out = walk.exponents.settle(terms, [3]).reshape(batch, -1)
    if bias is not None:
        out = walk.exponents.tie(out, walk.field(bias))
    lead = out if channel else out[0]
    note_product(walk, call, x, weight, out)
    return lead.reshape(*lead.shape, *(1,) * kernel).expand(tuple(call.shapes))


define("conv1d conv2d conv3d", units=convolution, scale=scaled_convolution)
define("convolution _convolution", units=convolution, scale=scaled_either)
define("conv_transpose1d conv_transpose2d conv_transpose3d", units=conv_transpose, scale=scaled_transpose)
