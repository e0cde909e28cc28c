"""Normalization layers: units stay units, and their scale, shift and statistics become slots of the group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rekindle.graph.operations.registry import Call, handles
from rekindle.graph.rules import runs_along, side_labels
from rekindle.graph.trace_log import UseKind
from rekindle.graph.value import NONE, Value, distinct, varying

NEUTRAL: dict[UseKind, float] = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "var": 1.0}


@handles(
    "batch_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "cudnn_batch_norm",
)
def batch_norm(call: Call) -> Value | list[Value]:
    """Normalize each channel over the batch: no unit sees another."""
    x: Value = call.args[0]
    kinds: list[UseKind] = ["scale", "shift", "mean", "var"]
    for kind, value in zip(kinds, call.args[1:5], strict=True):
        _slot(call, x, value, kind, dims=(1,))
    result = replace(x, product=None)
    return [result] if isinstance(call.shapes, list) else result


@handles("instance_norm")
def instance_norm(call: Call) -> Value | list[Value]:
    """Normalize each channel of each sample over its positions."""
    return batch_norm(call)


@handles("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def layer_norm(call: Call) -> Value | list[Value]:
    """Normalize over the last dimensions: every unit along them depends on all others."""
    x: Value = call.args[0]
    dims = tuple(range(len(x.shape) - len(call.args[1]), len(x.shape)))
    _slot(call, x, call.arg(2, "weight"), "scale", dims)
    _slot(call, x, call.arg(3, "bias") if "rms" not in call.op else None, "shift", dims)
    result = _coupled(x, dims)
    return [result] if isinstance(call.shapes, list) else result


@handles("group_norm", "native_group_norm")
def group_norm(call: Call) -> Value | list[Value]:
    """Normalize over groups of channels and positions."""
    x: Value = call.args[0]
    weight, bias = (call.arg(2, "weight"), call.arg(3, "bias")) if call.op == "group_norm" else call.args[1:3]
    _slot(call, x, weight, "scale", (1,))
    _slot(call, x, bias, "shift", (1,))
    result = _coupled(x, (1,))
    return [result] if isinstance(call.shapes, list) else result


def _coupled(x: Value, dims: Sequence[int]) -> Value:
    """Let all units along the normalized dimensions leak into each other."""
    mixed = [distinct(labels) for labels in x.unit_labels if varying(labels) & set(dims)]
    return replace(x, leaks=distinct(x.leaks, *mixed), product=None)


def _slot(call: Call, x: Value, value: Value | None, kind: UseKind, dims: tuple[int, ...]) -> None:
    """Tie a parameter or running statistic that lies along `dims` of the activation to its units."""
    if value is None or (value.param is None and not value.unit_labels):
        return
    for units in x.unit_labels:
        mine = [n for n, d in enumerate(dims) if d in varying(units)]
        single = not varying(units) and math.prod(value.shape) == 1
        if not single and not runs_along(call.trace_log, frozenset(dims[n] for n in mine), units):
            continue  # one value for several units: it belongs to none of them
        labels = _labels(call, value, mine or [0])
        shaped = labels.reshape([value.shape[dims.index(d)] if d in dims else 1 for d in range(len(x.shape))])
        call.trace_log.tie(shaped, units, "param")
        call.trace_log.use(labels, kind, call.location, NEUTRAL[kind])
    call.trace_log.no_axis(value, f"normalizes values without a unit axis of its own at {call.location}")


def _labels(call: Call, value: Value, dims: Sequence[int]) -> Tensor:
    """Return the labels of a parameter or statistic, of size one along other dimensions than `dims`."""
    if value.buffer:
        labels = call.trace_log.axis(str(value.param), value.shape, dims)
        return labels.reshape([size if d in dims else 1 for d, size in enumerate(value.shape)]).expand(value.shape)
    if value.base is not None:
        return side_labels(call.trace_log, value, dims)
    found = value.labels_over(dims[0])
    return torch.full(value.shape, NONE) if found is None else found
