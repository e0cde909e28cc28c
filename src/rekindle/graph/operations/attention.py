"""Scaled dot-product attention as a single operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rekindle.graph.operations.table import Call, define
from rekindle.graph.rules import by_head, contract
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, distinct, shrink, varying


def attention(call: Call) -> Value | list[Value]:
    """Units of softmax(q k^T) v: queries meet keys unit by unit, values are carried to the output."""
    query, key, value = call.args[:3]
    shape = call.shapes[0] if isinstance(call.shapes, list) else call.shapes
    lead = [f"b{n}" for n in range(len(query.shape) - 2)]
    key, value = _repeat_heads(key, query), _repeat_heads(value, query)
    scores = contract(
        call.trace_log,
        query,
        [*lead, "t", "d"],
        key,
        [*lead, "s", "d"],
        [*lead, "t", "s"],
        (*query.shape[:-1], key.shape[-2]),
        call.location,
    )
    inside = [n == len(query.shape) - 1 for n in range(len(query.shape))]
    for role, operand in (("q", query), ("k", key), ("v", value)):
        for labels in operand.unit_labels:
            if inside[-1] and len(query.shape) - 1 in varying(labels):
                call.trace_log.roles.append((role, by_head(labels, inside)))  # type: ignore[arg-type]
    mask = call.arg(3, "attn_mask")
    if isinstance(mask, Value):
        call.trace_log.no_axis(mask, f"is added to attention scores, which have no unit axis, at {call.location}")
    mixed = [labels for labels in value.unit_labels if len(value.shape) - 2 in varying(labels)]
    fields = tuple(
        torch.Tensor.expand(labels.narrow(-2, 0, 1), tuple(shape))
        for labels in value.unit_labels
        if len(value.shape) - 2 not in varying(labels)
    )
    leaks = distinct(
        scores.leaks,
        value.leaks,
        *mixed,
        *((mask.leaks, *mask.unit_labels) if isinstance(mask, Value) and mask.data else ()),
    )
    result = Value(tuple(shape), fields, data=True, leaks=leaks, opaque=scores.opaque | value.opaque)
    return [result] if isinstance(call.shapes, list) else result


def scaled_attention(walk: Walk, call: Call) -> Any:
    """Scale of softmax(q k^T) v: the scores stay as they are, the values carry their factor."""
    query, key, value = call.args[:3]
    many = isinstance(call.shapes, list)
    shape = call.shapes[0] if many else call.shapes
    times = max(query.shape[-3] // key.shape[-3], 1) if len(query.shape) > 2 else 1  # grouped queries share a key
    keys, values = (_repeated(walk.field(x), times) for x in (key, value))
    terms = walk.exponents.product([walk.field(query).unsqueeze(-2), keys.unsqueeze(-3)], [1.0, 1.0])
    walk.exponents.fix(terms)
    walk.curve([query, key], call.location)
    mask = call.arg(3, "attn_mask")
    if isinstance(mask, Value):
        walk.fix([mask], call.location)
    result = walk.exponents.settle(values, [values.ndim - 2]).expand(tuple(shape))
    return [result] if many else result


def _repeat_heads(value: Value, query: Value) -> Value:
    """Grouped-query attention: one key/value head serves several query heads."""
    if len(value.shape) < 3 or value.shape[-3] == query.shape[-3]:
        return value
    times = query.shape[-3] // value.shape[-3]
    shape = (*value.shape[:-3], query.shape[-3], *value.shape[-2:])
    fields = tuple(labels.repeat_interleave(times, dim=-3) for labels in value.unit_labels)
    return Value(shape, fields, data=value.data, leaks=value.leaks, opaque=value.opaque)


def _repeated(labels: Tensor, times: int) -> Tensor:
    return labels if times == 1 else shrink(torch.repeat_interleave(labels, times, dim=-3))


define(
    "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math "
    "_scaled_dot_product_efficient_attention",
    units=attention,
    scale=scaled_attention,
)
