"""Operations that mix elements without weights: pooling, means, softmax, resampling.

Units along a mixed axis do not survive as units: they leak into what comes out. Where that meets only the same group
again (a normalization written by hand) it does no harm; where it does not, the graph says through what it passes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rekindle.graph.operations.registry import Call, handles
from rekindle.graph.rules import elementwise
from rekindle.graph.value import Value, compact, distinct, shrink, varying

REDUCE = (
    "mean sum amax amin max min prod std var std_mean var_mean var_mean_correction logsumexp norm linalg_vector_norm "
    "argmax argmin any all median nanmean count_nonzero"
).split()
SPATIAL = (
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices lp_pool2d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_linear1d "
    "upsample_trilinear3d upsample_bicubic2d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_bilinear2d_aa grid_sampler grid_sampler_2d"
).split()


@handles(*REDUCE)
def reduce(call: Call) -> Any:
    """Reduce over dimensions: units along them leak, the others are carried."""
    x: Value = call.args[0]
    if len(call.values) > 1:  # the smaller of two tensors
        return elementwise(call.trace_log, call.values, call.shapes, "other", call.location)
    dims = reduced_dims(call, len(x.shape))
    keep = bool(call.kwargs.get("keepdim", False)) or any(arg is True for arg in call.args[2:])
    shapes = call.shapes if isinstance(call.shapes, list) else [call.shapes]
    results = [_leak_along(call, x, dims, keep, tuple(shape)) for shape in shapes]
    return results if isinstance(call.shapes, list) else results[0]


def reduced_dims(call: Call, ndim: int) -> set[int]:
    """Return the dimensions that a reduction is told to reduce."""
    position = 2 if call.op in ("norm", "linalg_vector_norm") else 1
    given = call.arg(position, "dim")
    if isinstance(given, bool) or given is None or (isinstance(given, (list, tuple)) and not given):
        return set(range(ndim))
    return {d % ndim for d in (given if isinstance(given, (list, tuple)) else [given])}


def _leak_along(call: Call, x: Value, dims: set[int], keep: bool, shape: tuple[int, ...]) -> Value:
    """Carry the fields that do not run along the dimensions; pool those that also run along others; leak the rest.

    What is pooled for good (not kept as a dimension of size one, as statistics are) are parts of one unit.
    """
    fields, leaks = [], [x.leaks]
    for labels in x.unit_labels:
        along = varying(labels)
        if along & dims and (keep or along <= dims):
            leaks.append(distinct(labels))
        else:
            for d in along & dims:
                call.trace_log.tie(labels, labels.narrow(d, 0, 1).expand(labels.shape), "joined")
            fields.append(_drop(labels, dims, keep).expand(shape))
    leaked = distinct(*leaks) if x.data else x.leaks
    return replace(
        x, shape=shape, unit_labels=tuple(fields), leaks=leaked, param=None, base=None, along=None, product=None
    )


def _drop(labels: Tensor, dims: set[int], keep: bool) -> Tensor:
    core = compact(shrink(labels))
    for d in sorted(dims, reverse=True):
        core = core.narrow(d, 0, 1) if keep else core.select(d, 0)
    return core


@handles(*SPATIAL)
def spatial(call: Call) -> Any:
    """Pool or resample positions: units along channels are carried, units along positions leak."""
    x: Value = call.args[0]
    shapes = call.shapes if isinstance(call.shapes, list) else [call.shapes]
    results = [_resized(call, x, tuple(shape)) for shape in shapes]
    return results if isinstance(call.shapes, list) else results[0]


def _resized(call: Call, x: Value, shape: tuple[int, ...]) -> Value:
    positions = {d for d in range(len(shape)) if d > 1 or (d == 1 and len(shape) == 2)}
    return _leak_along(call, x, positions, keep=True, shape=shape)


@handles("softmax", "_softmax", "log_softmax", "_log_softmax", "softmin")
def softmax(call: Call) -> Value:
    """Normalize over a dimension: every unit along it depends on all others."""
    x: Value = call.args[0]
    dim = int(call.args[1]) % len(x.shape)
    leaks = [x.leaks, *(distinct(labels) for labels in x.unit_labels if dim in varying(labels))]
    product = replace(x.product, softmaxed=True) if x.product is not None else None
    return replace(x, leaks=distinct(*leaks), product=product, param=None, base=None, along=None)


@handles("glu")
def glu(call: Call) -> Value:
    """One half times the gate of the other."""
    x: Value = call.args[0]
    dim = int(call.arg(1, "dim", -1))
    halves = [torch.chunk(labels, 2, dim) for labels in x.unit_labels]
    parts = [replace(x, shape=tuple(call.shapes), unit_labels=tuple(pair[n] for pair in halves)) for n in range(2)]
    return elementwise(call.trace_log, parts, call.shapes, "mul", call.location)


@handles("gather", "take_along_dim")
def gather(call: Call) -> Value:
    """Pick along a dimension by data: units along it leak, the others are carried."""
    x: Value = call.args[0]
    dim = int(call.args[1]) % len(x.shape)
    shape = tuple(call.shapes)
    leaks = [x.leaks, *(distinct(labels) for labels in x.unit_labels if dim in varying(labels))]
    kept = [_drop(labels, {dim}, keep=True) for labels in x.unit_labels if dim not in varying(labels)]
    fields = tuple(labels[tuple(slice(size) for size in shape)].expand(shape) for labels in kept)
    return replace(x, shape=shape, unit_labels=fields, leaks=distinct(*leaks), product=None)
