"""Operations that pick elements by an index: along units by constants only, along other dimensions by anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rekindle.graph.operations.table import Call, define
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, compact, shrink, varying


def index(call: Call) -> Any:
    """Units of what is indexed by tensors: along units by constants only, along other dimensions by anything."""
    x: Value = call.args[0]
    places = [place.const if isinstance(place, Value) else None for place in call.args[1]]
    if all((place is None) == (const is None) for place, const in zip(call.args[1], places, strict=True)):
        fields = tuple(shrink(torch.ops.aten.index(labels, places)) for labels in x.unit_labels)
        return replace(x, shape=tuple(call.shapes), unit_labels=fields, param=None, base=None, along=None)
    return unordered(call, tuple(d for d, place in enumerate(call.args[1]) if place is not None))


def indexed(walk: Walk, call: Call) -> Tensor:
    """Scale of elements picked by constants, or by anything from what keeps its proportion."""
    labels, places = walk.field(call.args[0]), call.args[1]
    known = [place.const if isinstance(place, Value) else None for place in places]
    if all((place is None) == (const is None) for place, const in zip(places, known, strict=True)):
        return shrink(torch.ops.aten.index(labels, known))
    walk.exponents.settle(labels, [d for d, place in enumerate(places) if place is not None])
    first = [torch.zeros(place.shape, dtype=torch.long) if place is not None else None for place in places]
    return torch.ops.aten.index(labels, first).expand(tuple(call.shapes))


def unordered(call: Call, dims: Sequence[int]) -> Any:
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


define("index", units=index, scale=indexed, picks=True)
