"""What only moves elements: the same call on the labels."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rekindle.graph.operations.rearrange import MOVE, PERMUTE, VIEW
from rekindle.graph.operations.registry import Call
from rekindle.graph.scaling.registry import non_homogeneous, rules
from rekindle.graph.scaling.scale_exponents import NEUTRAL, constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, compact, shrink


def _padded(call: Call) -> list[int]:
    return [len(call.args[0].shape) - 1 - n // 2 for n, amount in enumerate(call.args[1]) if amount]


@rules("constant_pad_nd", "pad", "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d")
def pad(walk: Walk, call: Call) -> Tensor:
    """Zeros around, or elements from inside."""
    labels, value = walk.field(call.args[0]), call.arg(2, "value", 0.0)
    mode = "constant" if call.op == "constant_pad_nd" else call.arg(2, "mode", "constant") if call.op == "pad" else ""
    if mode == "constant" and call.op == "pad":
        value = call.arg(3, "value", 0.0)
    if mode != "constant":
        return walk.exponents.settle(labels, _padded(call)).expand(tuple(call.shapes))
    if value and math.isfinite(value):
        return non_homogeneous(walk, call)
    return shrink(F.pad(labels.contiguous(), list(call.args[1]), value=NEUTRAL))


@rules(*PERMUTE, *MOVE, *VIEW)
def moved(walk: Walk, call: Call) -> Any:
    """The same call on the labels."""
    labels = walk.field(call.args[0])
    many = isinstance(call.shapes, list)
    core = compact(labels)
    if core.numel() == 1:
        label = int(core.reshape(()))
        return [constant(label, shape) for shape in call.shapes] if many else constant(label, call.shapes)
    if call.op in VIEW:
        return shrink(labels.reshape(tuple(call.shapes)))
    if call.op == "index_select" and isinstance(call.args[2], Value):
        return walk.exponents.settle(labels, [call.args[1]]).expand(tuple(call.shapes))
    args = [torch.empty(arg.shape) if isinstance(arg, Value) else arg for arg in call.args[1:]]
    result = call.target(labels, *args, **call.kwargs)
    return [shrink(piece) for piece in result] if many else shrink(result)


@rules("cat", "concat", "concatenate", "stack")
def stacked(walk: Walk, call: Call) -> Tensor:
    """Parts side by side."""
    return shrink(call.target([walk.field(value) for value in call.args[0]], *call.args[1:], **call.kwargs))


@rules("broadcast_tensors")
def broadcast(walk: Walk, call: Call) -> list[Tensor]:
    """Several values of one shape."""
    return [walk.field(v).expand(tuple(shape)) for v, shape in zip(call.args[0], call.shapes, strict=True)]


@rules("index")
def indexed(walk: Walk, call: Call) -> Tensor:
    """Elements picked by constants, or by anything from what keeps its proportion."""
    labels, places = walk.field(call.args[0]), call.args[1]
    known = [place.const if isinstance(place, Value) else None for place in places]
    if all((place is None) == (const is None) for place, const in zip(places, known, strict=True)):
        return shrink(torch.ops.aten.index(labels, known))
    walk.exponents.settle(labels, [d for d, place in enumerate(places) if place is not None])
    first = [torch.zeros(place.shape, dtype=torch.long) if place is not None else None for place in places]
    return torch.ops.aten.index(labels, first).expand(tuple(call.shapes))


@rules("view_as_complex")
def view_as_complex(walk: Walk, call: Call) -> Tensor:
    """Both parts of a number keep their proportion."""
    labels = walk.field(call.args[0])
    return walk.exponents.settle(labels, [labels.ndim - 1]).squeeze(-1)


@rules("view_as_real")
def view_as_real(walk: Walk, call: Call) -> Tensor:
    """Both parts of a number have its factor."""
    return walk.field(call.args[0]).unsqueeze(-1).expand(tuple(call.shapes))
