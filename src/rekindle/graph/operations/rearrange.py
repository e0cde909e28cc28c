"""Operations that move elements without changing them: the same call on the labels tells where they went.

That holds for the labels of units and for those of scale exponents alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rekindle.graph.operations.picked import unordered
from rekindle.graph.operations.table import Call, define
from rekindle.graph.rules import expand_to, side_labels
from rekindle.graph.scaling.scale_exponents import constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, compact, shrink

PERMUTE = "permute transpose t numpy_T mT movedim moveaxis swapaxes swapdims adjoint matrix_H".split()
VIEW = "view reshape _unsafe_view flatten unflatten _reshape_alias ravel".split()
MOVE = (
    "unsqueeze squeeze expand expand_as expand_copy slice select narrow split split_with_sizes chunk unbind "
    "tensor_split flip roll repeat repeat_interleave tile pixel_shuffle pixel_unshuffle channel_shuffle diagonal "
    "unfold broadcast_to view_as reshape_as atleast_1d atleast_2d rot90 tril triu"
).split()


def move(call: Call) -> Any:
    """Units of what only moves elements: the operation is called on the labels."""
    x: Value = call.args[0]
    if call.op in ("tril", "triu"):
        return replace(x, base=None, along=None)
    args = [_stand_in(arg) if isinstance(arg, Value) else arg for arg in call.args[1:]]
    if call.op == "index_select" and isinstance(call.args[2], Value):
        return unordered(call, (call.args[1] % len(x.shape),))
    if call.op == "repeat_interleave" and len(call.values) > 1:
        return _repeated(call)
    moved = [call.target(labels, *args, **call.kwargs) for labels in x.unit_labels]
    if isinstance(call.shapes, list):
        return [_moved(call, x, [pieces[n] for pieces in moved], shape) for n, shape in enumerate(call.shapes)]
    return _moved(call, x, moved, call.shapes)


def moved(walk: Walk, call: Call) -> Any:
    """Scale of what only moves elements: the same call on the labels."""
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


def _repeated(call: Call) -> Any:
    """Units of elements each repeated its own number of times, if the numbers are known."""
    x, times = call.values[:2]
    if times.const is None or len(call.args) < 3:
        return call.trace_log.gap(call.values, call.location)
    fields = [shrink(labels.repeat_interleave(times.const, call.args[2])) for labels in x.unit_labels]
    return replace(x, shape=tuple(call.shapes), unit_labels=tuple(fields), param=None, base=None, along=None)


def _stand_in(value: Value) -> Tensor:
    """Stand in for an operand of which only the shape matters."""
    return torch.empty(value.shape)


def _moved(call: Call, x: Value, fields: Sequence[Tensor], shape: Sequence[int]) -> Value:
    base, along = _follow(call, x)
    return replace(x, shape=tuple(shape), unit_labels=tuple(map(shrink, fields)), base=base, along=along)


def _follow(call: Call, x: Value) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Follow the dimensions of a whole parameter through a permutation."""
    if x.along is None or call.op not in PERMUTE:
        return None, None
    order = call.target(torch.empty([d + 2 for d in range(len(x.shape))]), *call.args[1:], **call.kwargs).shape
    now = [size - 2 for size in order]  # now[d]: which dimension stands at d
    return tuple(x.base[d] for d in now) if x.base else None, tuple(now.index(d) for d in x.along)


def view(call: Call) -> Value:
    """Units of a view: the labels are reshaped; a whole parameter gets one joint axis where dimensions are merged."""
    x: Value = call.args[0]
    shape = tuple(call.shapes)
    if x.base is not None and x.is_parameter and x.base == tuple(range(len(x.shape))):
        if shape == x.shape:
            return x
        blocks = _blocks(x.shape, shape)
        fields = [_block_labels(call, x, old, shape, new) for old, new in blocks if old]
        return replace(
            x, shape=shape, unit_labels=tuple(fields), base=None, along=tuple(new[0] for old, new in blocks if old)
        )
    fields = [shrink(labels.reshape(shape)) for labels in x.unit_labels]
    return replace(x, shape=shape, unit_labels=tuple(fields), base=None, along=None)


def _block_labels(call: Call, x: Value, old: list[int], shape: Sequence[int], new: list[int]) -> Tensor:
    labels = compact(side_labels(call.trace_log, x, old)).reshape(-1)
    return labels.reshape([size if d in new else 1 for d, size in enumerate(shape)]).expand(tuple(shape))


def _blocks(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Pair the dimensions of two shapes of equal size that hold the same elements.

    >>> _blocks((6, 4), (2, 3, 4))
    [([0], [0, 1]), ([1], [2])]
    """
    blocks: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left: list[int] = []
        right: list[int] = []
        a = b = 1
        while True:
            if i < len(old) and (a < b or not left or (a == b and old[i] == 1)):
                a, i = a * old[i], i + 1
                left.append(i - 1)
            elif j < len(new) and (b < a or not right or (a == b and new[j] == 1 and i >= len(old))):
                b, j = b * new[j], j + 1
                right.append(j - 1)
            else:
                break
        if left and right:
            blocks.append((left, right))
        elif blocks:
            blocks[-1] = (blocks[-1][0] + left, blocks[-1][1] + right)
    return blocks


def broadcast_tensors(call: Call) -> list[Value]:
    """Units of several values that are expanded to one shape."""
    values: list[Value] = list(call.args[0])
    shape = tuple(call.shapes[0])
    return [
        replace(v, shape=shape, unit_labels=tuple(expand_to(f, shape) for f in v.unit_labels), base=None, along=None)
        for v in values
    ]


def scaled_broadcast(walk: Walk, call: Call) -> list[Tensor]:
    """Scale of several values that are expanded to one shape."""
    return [walk.field(v).expand(tuple(shape)) for v, shape in zip(call.args[0], call.shapes, strict=True)]


def view_as_complex(call: Call) -> Value:
    """Units of two numbers that become one: their units are one unit from here on (rotary embeddings)."""
    x: Value = call.args[0]
    for labels in x.unit_labels:
        call.trace_log.tie(labels[..., 0], labels[..., 1], "joined")
    fields = tuple(shrink(labels[..., 0]) for labels in x.unit_labels)
    return replace(x, shape=tuple(call.shapes), unit_labels=fields, base=None, along=None)


def scaled_complex(walk: Walk, call: Call) -> Tensor:
    """Scale of two numbers that become one: both parts of a number keep their proportion."""
    labels = walk.field(call.args[0])
    return walk.exponents.settle(labels, [labels.ndim - 1]).squeeze(-1)


def view_as_real(call: Call) -> Value:
    """Units of a complex number: both parts belong to its unit."""
    x: Value = call.args[0]
    shape = tuple(call.shapes)
    fields = tuple(labels.unsqueeze(-1).expand(shape) for labels in x.unit_labels)
    return replace(x, shape=shape, unit_labels=fields, base=None, along=None)


def scaled_real(walk: Walk, call: Call) -> Tensor:
    """Scale of a complex number: both parts have its factor."""
    return walk.field(call.args[0]).unsqueeze(-1).expand(tuple(call.shapes))


define([*PERMUTE, *MOVE], units=move, scale=moved)
define("index_select", units=move, scale=moved, picks=True)
define(VIEW, units=view, scale=moved)
define("broadcast_tensors", units=broadcast_tensors, scale=scaled_broadcast)
define("view_as_complex", units=view_as_complex, scale=scaled_complex)
define("view_as_real", units=view_as_real, scale=scaled_real)
