"""Normalization layers: units stay units, and their scale, shift and statistics become slots of the group.

Scale: a normalization forgets the factor of what it is given, and its own scale and shift decide about what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rekindle.graph.operations.table import Call, define
from rekindle.graph.rules import runs_along, side_labels
from rekindle.graph.scaling.scale_exponents import UNCHANGED, constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.trace_log import UseKind
from rekindle.graph.value import NONE, Value, distinct, varying

NEUTRAL: dict[UseKind, float] = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "var": 1.0}


def batch_norm(call: Call) -> Value | list[Value]:
    """Units of BatchNorm, and of InstanceNorm: each channel is normalized alone, no unit sees another."""
    x: Value = call.args[0]
    kinds: list[UseKind] = ["scale", "shift", "mean", "var"]
    for kind, value in zip(kinds, call.args[1:5], strict=True):
        _slot(call, x, value, kind, dims=(1,))
    result = replace(x, product=None)
    return [result] if isinstance(call.shapes, list) else result


def scaled_batch_norm(walk: Walk, call: Call) -> Tensor:
    """Scale of BatchNorm: running statistics take the factor of what goes in, the scale decides what comes out."""
    x, weight, bias, mean, var = call.args[:5]
    channels = walk.exponents.settle(walk.field(x), [d for d in range(len(x.shape)) if d != 1]).reshape(-1)
    for statistic, degree in ((mean, 1.0), (var, 2.0)):
        if isinstance(statistic, Value):
            named = statistic.param is not None
            stored = walk.stored(str(statistic.param), statistic.shape) if named else walk.field(statistic)
            walk.exponents.tie(stored, walk.exponents.product([channels], [degree]))
    shape = [size if d == 1 else 1 for d, size in enumerate(x.shape)]
    return _scaled(walk, weight, bias, shape, x.shape)


def layer_norm(call: Call) -> Value | list[Value]:
    """Units of a normalization over the last dimensions: every unit along them depends on all others."""
    x: Value = call.args[0]
    dims = tuple(range(len(x.shape) - len(call.args[1]), len(x.shape)))
    _slot(call, x, call.arg(2, "weight"), "scale", dims)
    _slot(call, x, call.arg(3, "bias") if "rms" not in call.op else None, "shift", dims)
    result = _coupled(x, dims)
    return [result] if isinstance(call.shapes, list) else result


def scaled_layer_norm(walk: Walk, call: Call) -> Tensor:
    """Scale: everything along the normalized dimensions keeps its proportion."""
    x: Value = call.args[0]
    normed = len(call.args[1])
    walk.exponents.settle(walk.field(x), range(len(x.shape) - normed, len(x.shape)))
    bias = call.arg(3, "bias") if "rms" not in call.op else None
    return _scaled(walk, call.arg(2, "weight"), bias, call.args[1], x.shape)


def group_norm(call: Call) -> Value | list[Value]:
    """Units of a normalization over groups of channels and positions."""
    x: Value = call.args[0]
    weight, bias = (call.arg(2, "weight"), call.arg(3, "bias")) if call.op == "group_norm" else call.args[1:3]
    _slot(call, x, weight, "scale", (1,))
    _slot(call, x, bias, "shift", (1,))
    result = _coupled(x, (1,))
    return [result] if isinstance(call.shapes, list) else result


def scaled_group_norm(walk: Walk, call: Call) -> Tensor:
    """Scale: everything in a group of channels keeps its proportion."""
    x: Value = call.args[0]
    plain = call.op == "group_norm"
    groups = int(call.args[1] if plain else call.args[6])
    weight, bias = (call.arg(2, "weight"), call.arg(3, "bias")) if plain else call.args[1:3]
    within = walk.field(x).reshape(x.shape[0], groups, -1)
    walk.exponents.settle(within, [2])
    return _scaled(walk, weight, bias, [x.shape[1] if d == 1 else 1 for d in range(len(x.shape))], x.shape)


def _coupled(x: Value, dims: Sequence[int]) -> Value:
    """Let all units along the normalized dimensions leak into each other."""
    mixed = [distinct(labels) for labels in x.unit_labels if x.data and varying(labels) & set(dims)]
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


def _scaled(walk: Walk, weight: Any, bias: Any, at: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Return the field after a normalization: that of its scale, and of its shift."""
    known = [walk.field(p).reshape(tuple(at)) for p in (weight, bias) if isinstance(p, Value)]
    if not isinstance(weight, Value):
        known.append(constant(UNCHANGED, at))
    return walk.exponents.tie(*known).expand(tuple(shape))


define(
    "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "instance_norm",
    units=batch_norm,
    scale=scaled_batch_norm,
)
define("layer_norm native_layer_norm rms_norm _fused_rms_norm", units=layer_norm, scale=scaled_layer_norm)
define("group_norm native_group_norm", units=group_norm, scale=scaled_group_norm)
