"""Operations that move elements without changing them: the same call on the fields tells where the units went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rekindle.graph.operations.registry import Call, handles
from rekindle.graph.rules import expand_to, side_labels
from rekindle.graph.trace_log import merge_leaks, merge_opaque, merge_sources
from rekindle.graph.value import NONE, Value, compact, distinct, shrink, varying

PERMUTE = "permute transpose t numpy_T mT movedim moveaxis swapaxes swapdims adjoint matrix_H".split()
VIEW = "view reshape _unsafe_view flatten unflatten _reshape_alias ravel".split()
MOVE = (
    "unsqueeze squeeze expand expand_as expand_copy slice select narrow split split_with_sizes chunk unbind "
    "tensor_split flip roll repeat repeat_interleave tile pixel_shuffle pixel_unshuffle channel_shuffle diagonal "
    "unfold broadcast_to index_select view_as reshape_as atleast_1d atleast_2d rot90 tril triu"
).split()


@handles(*PERMUTE, *MOVE)
def move(call: Call) -> Any:
    """Call the operation on the labels."""
    x: Value = call.args[0]
    if call.op in ("tril", "triu"):
        return replace(x, base=None, along=None)
    args = [_stand_in(arg) if isinstance(arg, Value) else arg for arg in call.args[1:]]
    if call.op == "index_select" and isinstance(call.args[2], Value):
        return _unordered(call, (call.args[1] % len(x.shape),))
    moved = [call.target(labels, *args, **call.kwargs) for labels in x.unit_labels]
    if isinstance(call.shapes, list):
        return [_moved(call, x, [pieces[n] for pieces in moved], shape) for n, shape in enumerate(call.shapes)]
    return _moved(call, x, moved, call.shapes)


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


@handles(*VIEW)
def view(call: Call) -> Value:
    """Reshape the labels; a whole parameter gets one joint axis where dimensions are merged."""
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


@handles("cat", "concat", "concatenate", "stack")
def join(call: Call) -> Value:
    """Join values along a dimension: fields along the same dimensions become one, gaps are without unit.

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
        pieces = [_matching(call, value, pattern, with_data) for value in values]
        if call.op != "stack" and dim not in pattern:
            pieces = _shared(call, pieces, dim)
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


def _shared(call: Call, pieces: list[Tensor], dim: int) -> list[Tensor]:
    found = [distinct(piece) for piece in pieces]
    axes = {call.trace_log.axis_of(int(labels[0])) for labels in found if labels.numel()}
    if len(axes) < 2 and all(labels.numel() for labels in found):
        return pieces
    thin = [compact(shrink(piece)).narrow(dim, 0, 1) for piece in pieces]
    first = next((piece for piece in thin if bool((piece != NONE).any())), thin[0])
    for piece in thin:
        call.trace_log.tie(first, piece, "joined")
    return [first.expand(piece.shape) for piece in pieces]


def _matching(call: Call, value: Value, pattern: frozenset[int], with_data: bool) -> Tensor:
    for n, labels in enumerate(value.unit_labels):
        dims = value.dims(n)
        if dims & pattern or (not dims and not pattern) or (not pattern and len(value.unit_labels) == 1):
            if with_data and not value.data:
                call.trace_log.use(labels, "bias", call.location)
            return labels
    return torch.full(value.shape, NONE)


@handles("constant_pad_nd", "pad", "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d")
def pad(call: Call) -> Value:
    """Pad with elements that belong to no unit."""
    x: Value = call.args[0]
    shape = tuple(call.shapes)
    amounts = list(call.args[1])
    padded = {len(x.shape) - 1 - n // 2 for n, amount in enumerate(amounts) if amount}
    fields = []
    for labels in x.unit_labels:
        along = varying(labels)
        if not along & padded:
            fields.append(_widen(labels, shape, padded))
        else:
            fields.append(F.pad(shrink(labels).contiguous(), amounts, value=NONE))
    return replace(x, shape=shape, unit_labels=tuple(fields), param=None, base=None, along=None)


def _widen(labels: Tensor, shape: tuple[int, ...], changed: set[int] | frozenset[int]) -> Tensor:
    core = compact(shrink(labels))
    for d in changed:
        core = core.narrow(d, 0, 1) if core.shape[d] > 1 else core
    return core.expand(shape)


@handles("index")
def index(call: Call) -> Any:
    """Index by tensors: along units by constants only, along other dimensions by anything."""
    x: Value = call.args[0]
    places = [place.const if isinstance(place, Value) else None for place in call.args[1]]
    if all((place is None) == (const is None) for place, const in zip(call.args[1], places, strict=True)):
        fields = tuple(shrink(torch.ops.aten.index(labels, places)) for labels in x.unit_labels)
        return replace(x, shape=tuple(call.shapes), unit_labels=fields, param=None, base=None, along=None)
    return _unordered(call, tuple(d for d, place in enumerate(call.args[1]) if place is not None))


def _unordered(call: Call, dims: Sequence[int]) -> Any:
    """Pick elements along dimensions in an order that is not known while tracing."""
    x: Value = call.args[0]
    if any(varying(labels) & set(dims) for labels in x.unit_labels if x.data):
        return call.trace_log.gap(call.values, call.location)
    fields = []
    for labels in x.unit_labels:
        if varying(labels) & set(dims):
            continue  # rows of a table that is looked up: no units along it
        core = compact(shrink(labels))
        fields.append(_picked(call, core))
    return replace(x, shape=tuple(call.shapes), unit_labels=tuple(fields), param=None, base=None, along=None)


def _picked(call: Call, core: Tensor) -> Tensor:
    """Repeat the call on labels of size one along the picked dimensions, at place zero."""
    if call.op == "index":
        picked = torch.ops.aten.index(core, [_zeros(place) if place is not None else None for place in call.args[1]])
    else:
        picked = core.index_select(call.args[1], _zeros(call.args[2]))
    return picked.expand(tuple(call.shapes))


def _zeros(place: Value) -> Tensor:
    return torch.zeros(place.shape, dtype=torch.long)


@handles("broadcast_tensors")
def broadcast_tensors(call: Call) -> list[Value]:
    """Expand several values to one shape."""
    values: list[Value] = list(call.args[0])
    shape = tuple(call.shapes[0])
    return [
        replace(v, shape=shape, unit_labels=tuple(expand_to(f, shape) for f in v.unit_labels), base=None, along=None)
        for v in values
    ]


@handles("view_as_complex")
def view_as_complex(call: Call) -> Value:
    """Two numbers become one: their units are one unit from here on (rotary embeddings)."""
    x: Value = call.args[0]
    for labels in x.unit_labels:
        call.trace_log.tie(labels[..., 0], labels[..., 1], "joined")
    fields = tuple(shrink(labels[..., 0]) for labels in x.unit_labels)
    return replace(x, shape=tuple(call.shapes), unit_labels=fields, base=None, along=None)


@handles("view_as_real")
def view_as_real(call: Call) -> Value:
    """Both parts of a complex number belong to its unit."""
    x: Value = call.args[0]
    shape = tuple(call.shapes)
    fields = tuple(labels.unsqueeze(-1).expand(shape) for labels in x.unit_labels)
    return replace(x, shape=shape, unit_labels=fields, base=None, along=None)
