"""Operations that put values side by side, or something around them: concatenation, stacking, padding."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from rekindle.graph.operations.table import Call, define, non_homogeneous
from rekindle.graph.scaling.scale_exponents import NEUTRAL
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.trace_log import merge_leaks, merge_opaque, merge_sources
from rekindle.graph.value import NONE, Value, compact, distinct, shrink, varying


def join(call: Call) -> Value:
    """Units of values side by side: labels along the same dimensions become one, gaps are without unit.

    Joined along an axis without units (a class token before the patches), parts from different tensors share their
    units: whatever comes next treats them alike. Parts of one tensor (heads) keep their own.
    """
    values: list[Value] = list(call.args[0])
    dim = int(call.arg(1, "dim", 0)) % (len(call.shapes))
    with_data = any(value.data for value in values)
    patterns: list[frozenset[int]] = []
    for value in values:
        if value.data or not with_data:
            for n in range(len(value.unit_labels)):
                pattern = frozenset(value.dims(n))
                if not any(pattern & known for known in patterns) and (pattern or not patterns):
                    patterns.append(pattern)
    fields = []
    for pattern in patterns:
        pieces = [_matching(call, value, pattern, with_data, dim in pattern) for value in values]
        if call.op != "stack" and dim not in pattern:
            pieces = _shared(call, pieces, dim, with_data)
        fields.append(shrink(call.target(pieces, *call.args[1:], **call.kwargs)))
    for value in values:
        if with_data and not value.data and not patterns:
            call.trace_log.no_axis(value, f"is joined to values without a unit axis at {call.location}")
    return Value(
        tuple(call.shapes),
        tuple(fields),
        data=with_data,
        leaks=merge_leaks(*values),
        opaque=merge_opaque(*values),
        sources=merge_sources(*values),
    )


def stacked(walk: Walk, call: Call) -> Tensor:
    """Scale of values side by side: each has its own."""
    return shrink(call.target([walk.field(value) for value in call.args[0]], *call.args[1:], **call.kwargs))


def _shared(call: Call, pieces: list[Tensor], dim: int, with_data: bool) -> list[Tensor]:
    found = [distinct(piece) for piece in pieces]
    axes = {call.trace_log.axis_of(int(labels[0])) for labels in found if labels.numel()}
    if len(axes) < 2 and all(labels.numel() for labels in found):
        return pieces
    thin = [compact(shrink(piece)).narrow(dim, 0, 1) for piece in pieces]
    first = next((piece for piece in thin if bool((piece != NONE).any())), thin[0])
    for piece in thin:
        call.trace_log.tie(first, piece, "joined" if with_data else "composed")
    return [first.expand(piece.shape) for piece in pieces]


def _matching(call: Call, value: Value, pattern: frozenset[int], with_data: bool, along: bool) -> Tensor:
    """Return the labels of a part that run along the dimensions of a pattern; NONE where it has none.

    A single unit has no dimension of its own: joined along the units of others it is one more of them.
    """
    for n, labels in enumerate(value.unit_labels):
        dims = value.dims(n)
        if dims & pattern or (not dims and (along or not pattern)) or (not pattern and len(value.unit_labels) == 1):
            if with_data and not value.data:
                call.trace_log.use(labels, "bias", call.location)
            return labels
    return torch.full(value.shape, NONE)


def pad(call: Call) -> Value:
    """Units of what is padded: the elements around belong to none."""
    x: Value = call.args[0]
    shape = tuple(call.shapes)
    amounts = list(call.args[1])
    copies = call.op != "constant_pad_nd" and (call.op != "pad" or call.arg(2, "mode", "constant") != "constant")
    padded = {len(x.shape) - 1 - n // 2 for n, amount in enumerate(amounts) if amount}
    fields = []
    for labels in x.unit_labels:
        along = varying(labels)
        if not along & padded:
            fields.append(_widen(labels, shape, padded))
        elif copies:  # elements of the units themselves, a second time
            again: Tensor = call.target(shrink(labels).double().contiguous(), *call.args[1:], **call.kwargs)
            fields.append(again.long())
        else:
            fields.append(F.pad(shrink(labels).contiguous(), amounts, value=NONE))
    return replace(x, shape=shape, unit_labels=tuple(fields), param=None, base=None, along=None)


def scaled_pad(walk: Walk, call: Call) -> Tensor:
    """Scale of what is padded with zeros, or with elements from inside."""
    labels, value = walk.field(call.args[0]), call.arg(2, "value", 0.0)
    mode = "constant" if call.op == "constant_pad_nd" else call.arg(2, "mode", "constant") if call.op == "pad" else ""
    if mode == "constant" and call.op == "pad":
        value = call.arg(3, "value", 0.0)
    if mode != "constant":
        return walk.exponents.settle(labels, _padded(call)).expand(tuple(call.shapes))
    if value and math.isfinite(value):
        return non_homogeneous(walk, call)
    return shrink(F.pad(labels.contiguous(), list(call.args[1]), value=NEUTRAL))


def _widen(labels: Tensor, shape: tuple[int, ...], changed: set[int] | frozenset[int]) -> Tensor:
    core = compact(shrink(labels))
    for d in changed:
        core = core.narrow(d, 0, 1) if core.shape[d] > 1 else core
    return core.expand(shape)


def _padded(call: Call) -> list[int]:
    return [len(call.args[0].shape) - 1 - n // 2 for n, amount in enumerate(call.args[1]) if amount]


def windows(call: Call) -> Value:
    """Units of the windows of an image side by side (`F.unfold`): a channel has a place for each kernel position."""
    x: Value = call.args[0]
    shape, image = tuple(call.shapes), {len(x.shape) - 2, len(x.shape) - 1}
    fields = []
    for labels in x.unit_labels:
        if varying(labels) & image:
            fields.append(shrink(_windows(labels, call)))
        else:  # what is padded around belongs to the channel
            channels = compact(shrink(labels)).narrow(-1, 0, 1).narrow(-2, 0, 1).flatten(-2)
            fields.append(channels.repeat_interleave(math.prod(call.args[1]), dim=-2).expand(shape))
    return replace(x, shape=shape, unit_labels=tuple(fields), param=None, base=None, along=None)


def scaled_windows(walk: Walk, call: Call) -> Tensor:
    """Scale of the windows of an image, with zeros around it."""
    return shrink(_windows(walk.field(call.args[0]).contiguous(), call))


def _windows(labels: Tensor, call: Call) -> Tensor:
    """Call im2col on labels; what is padded around is without label."""
    moved: Tensor = call.target((labels.double() + 1), *call.args[1:], **call.kwargs)
    return moved.long() - 1


define("cat concat concatenate stack", units=join, scale=stacked)
define(
    "constant_pad_nd pad reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d",
    units=pad,
    scale=scaled_pad,
)
define("im2col", units=windows, scale=scaled_windows)
