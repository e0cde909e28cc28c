"""Normalisation layers: units stay units, and their scale, shift and statistics become slots of the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rekindle.graph.handlers.registry import Call, handles
from rekindle.graph.ledger import UseKind
from rekindle.graph.value import Value, distinct, varying

NEUTRAL: dict[UseKind, float] = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "var": 1.0}


@handles(
    "batch_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "cudnn_batch_norm",
)
def batch_norm(call: Call) -> Value | list[Value]:
    """Normalise each channel over the batch: no unit sees another."""
    x: Value = call.args[0]
    kinds: list[UseKind] = ["scale", "shift", "mean", "var"]
    for kind, value in zip(kinds, call.args[1:5], strict=True):
        _slot(call, x, value, kind, dims=(1,))
    result = replace(x, product=None)
    return [result] if isinstance(call.shapes, list) else result


@handles("instance_norm")
def instance_norm(call: Call) -> Value | list[Value]:
    """Normalise each channel of each sample over its positions."""
    return batch_norm(call)


@handles("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def layer_norm(call: Call) -> Value | list[Value]:
    """Normalise over the last dimensions: every unit along them depends on all others."""
    x: Value = call.args[0]
    dims = tuple(range(len(x.shape) - len(call.args[1]), len(x.shape)))
    _slot(call, x, call.arg(2, "weight"), "scale", dims)
    _slot(call, x, call.arg(3, "bias") if "rms" not in call.op else None, "shift", dims)
    result = _coupled(x, dims)
    return [result] if isinstance(call.shapes, list) else result


@handles("group_norm", "native_group_norm")
def group_norm(call: Call) -> Value | list[Value]:
    """Normalise over groups of channels and positions."""
    x: Value = call.args[0]
    weight, bias = (call.arg(2, "weight"), call.arg(3, "bias")) if call.op == "group_norm" else call.args[1:3]
    _slot(call, x, weight, "scale", (1,))
    _slot(call, x, bias, "shift", (1,))
    result = _coupled(x, (1,))
    return [result] if isinstance(call.shapes, list) else result


def _coupled(x: Value, dims: Sequence[int]) -> Value:
    """Let all units along the normalised dimensions leak into each other."""
    mixed = [distinct(labels) for labels in x.fields if varying(labels) & set(dims)]
    return replace(x, leaks=distinct(x.leaks, *mixed), product=None)


def _slot(call: Call, x: Value, value: Value | None, kind: UseKind, dims: tuple[int, ...]) -> None:
    """Tie a parameter or running statistic that lies along `dims` of the activation to its units."""
    if value is None or value.param is None:
        return
    for d, size in zip(dims, value.shape, strict=True):
        labels = _labels(call, value, dims.index(d))
        shaped = labels.reshape([size if n == d else 1 for n in range(len(x.shape))])
        for units in x.fields:
            if d in varying(units) or (not varying(units) and size == 1):
                call.ledger.tie(shaped, units, "param")
                call.ledger.use(labels, kind, call.site, NEUTRAL[kind])
    call.ledger.no_axis(value, f"normalises values without a unit axis at {call.site}")


def _labels(call: Call, value: Value, dim: int) -> Tensor:
    if value.buffer or value.base is not None:
        return call.ledger.axis(str(value.param), value.shape, (dim,))
    found = value.field_over(dim)
    return torch.empty(0, dtype=torch.long) if found is None else found
