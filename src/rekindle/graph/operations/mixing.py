"""Operations that mix elements without weights: pooling, means, softmax, resampling.

Units along a mixed axis do not survive as units: they leak into what comes out. Where that meets only the same group
again (a normalization written by hand) it does no harm; where it does not, the graph says through what it passes.
Scale: all that is mixed keeps its proportion.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rekindle.graph.operations.elementwise import join
from rekindle.graph.operations.table import Call, define, non_homogeneous
from rekindle.graph.rules import elementwise
from rekindle.graph.scaling.scale_exponents import UNCHANGED, constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, compact, distinct, shrink, varying

DEGREES = {  # reductions that are homogeneous: the degree of each result
    **dict.fromkeys("mean sum amax amin median nanmean norm linalg_vector_norm std".split(), (1.0,)),
    **{"max": (1.0, 0.0), "min": (1.0, 0.0), "var": (2.0,), "std_mean": (1.0, 1.0), "var_mean": (2.0, 1.0)},
    "var_mean_correction": (2.0, 1.0),
    **dict.fromkeys("argmax argmin any all count_nonzero".split(), (0.0,)),
}
SPATIAL = (
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices lp_pool2d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_linear1d "
    "upsample_trilinear3d upsample_bicubic2d _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_bilinear2d_aa grid_sampler grid_sampler_2d"
).split()


def reduce(call: Call) -> Any:
    """Units of a reduction: those along the reduced dimensions leak, the others are carried."""
    x: Value = call.args[0]
    if len(call.values) > 1:  # the smaller of two tensors
        return elementwise(call.trace_log, call.values, call.shapes, "other", call.location)
    dims = reduced_dims(call, len(x.shape))
    keep = bool(call.kwargs.get("keepdim", False)) or any(arg is True for arg in call.args[2:])
    shapes = call.shapes if isinstance(call.shapes, list) else [call.shapes]
    results = [_leak_along(call, x, dims, keep, tuple(shape)) for shape in shapes]
    return results if isinstance(call.shapes, list) else results[0]


def reduced(walk: Walk, call: Call) -> Any:
    """Scale of a reduction: all that is put together keeps its proportion."""
    x: Value = call.args[0]
    if len(call.values) > 1:
        return join(walk, call, call.args[:2])
    dims = sorted(reduced_dims(call, len(x.shape)))
    one = walk.exponents.settle(walk.field(x), dims)
    degrees = DEGREES.get(call.op) or (float(math.prod(x.shape[d] for d in dims)),)
    shapes = call.shapes if isinstance(call.shapes, list) else [call.shapes]
    results = []
    for degree, shape in zip(degrees, shapes, strict=False):
        scaled = walk.exponents.product([one], [degree])
        kept = scaled if len(shape) == scaled.ndim else scaled.squeeze(tuple(dims)) if dims else scaled
        results.append(kept.expand(tuple(shape)))
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
                call.trace_log.tie(
                    labels, labels.narrow(d, 0, 1).expand(labels.shape), "joined" if x.data else "composed"
                )
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


def spatial(call: Call) -> Any:
    """Units of what pools or resamples positions: those along channels are carried, those along positions leak."""
    x: Value = call.args[0]
    shapes = call.shapes if isinstance(call.shapes, list) else [call.shapes]
    results = [_resized(call, x, tuple(shape)) for shape in shapes]
    return results if isinstance(call.shapes, list) else results[0]


def pooled(walk: Walk, call: Call) -> Any:
    """Scale of what pools or resamples: positions keep their proportion."""
    x: Value = call.args[0]
    walk.fix([value for value in call.values[1:] if value.relevant], call.location)
    count = int((re.findall(r"(\d)d", call.op) or ["2"])[0])
    one = walk.exponents.settle(walk.field(x), range(len(x.shape) - count, len(x.shape)))
    shapes = call.shapes if isinstance(call.shapes, list) else [call.shapes]
    return [one.expand(tuple(shapes[0])), *(constant(UNCHANGED, shape) for shape in shapes[1:])]


def _resized(call: Call, x: Value, shape: tuple[int, ...]) -> Value:
    positions = {d for d in range(len(shape)) if d > 1 or (d == 1 and len(shape) == 2)}
    return _leak_along(call, x, positions - _untouched(call, x, shape), keep=True, shape=shape)


def _untouched(call: Call, x: Value, shape: tuple[int, ...]) -> set[int]:
    """Return the dimensions that a window of one position leaves as they are (tokens pooled, channels behind them)."""
    if "_pool" not in call.op or "adaptive" in call.op:
        return set()
    kernel = [call.args[1]] if isinstance(call.args[1], int) else list(call.args[1])
    last = int(call.op.split("pool")[1][0])
    sizes = kernel * last if len(kernel) == 1 else kernel
    dims = range(len(shape) - last, len(shape))
    return {d for d, size in zip(dims, sizes, strict=True) if size == 1 and x.shape[d] == shape[d]}


def softmax(call: Call) -> Value:
    """Units of a softmax over a dimension: every unit along it depends on all others."""
    x: Value = call.args[0]
    dim = int(call.args[1]) % len(x.shape)
    leaks = [x.leaks, *(distinct(labels) for labels in x.unit_labels if x.data and dim in varying(labels))]
    product = replace(x.product, softmaxed=True) if x.product is not None else None
    return replace(x, leaks=distinct(*leaks), product=product, param=None, base=None, along=None)


def glu(call: Call) -> Value:
    """Units of one half times the gate of the other: both halves are one."""
    x: Value = call.args[0]
    dim = int(call.arg(1, "dim", -1))
    halves = [torch.chunk(labels, 2, dim) for labels in x.unit_labels]
    parts = [replace(x, shape=tuple(call.shapes), unit_labels=tuple(pair[n] for pair in halves)) for n in range(2)]
    return elementwise(call.trace_log, parts, call.shapes, "mul", call.location)


def scaled_glu(walk: Walk, call: Call) -> Tensor:
    """Scale of one half times a gate of the other that stays as it is."""
    half, gate = walk.field(call.args[0]).chunk(2, int(call.arg(1, "dim", -1)))
    walk.exponents.fix(gate)
    walk.curve([call.args[0]], call.location)
    return half


def gather(call: Call) -> Value:
    """Units of what is picked along a dimension by data: those along it leak, the others are carried."""
    x: Value = call.args[0]
    dim = int(call.args[1]) % len(x.shape)
    shape = tuple(call.shapes)
    leaks = [x.leaks, *(distinct(labels) for labels in x.unit_labels if x.data and dim in varying(labels))]
    kept = [_drop(labels, {dim}, keep=True) for labels in x.unit_labels if dim not in varying(labels)]
    fields = tuple(labels[tuple(slice(size) for size in shape)].expand(shape) for labels in kept)
    return replace(x, shape=shape, unit_labels=fields, leaks=distinct(*leaks), product=None)


def gathered(walk: Walk, call: Call) -> Tensor:
    """Scale of any element along a dimension: all of them keep their proportion."""
    one = walk.exponents.settle(walk.field(call.args[0]), [int(call.args[1]) % len(call.args[0].shape)])
    core = compact(shrink(one))
    return core[tuple(slice(size) for size in call.shapes)].expand(tuple(call.shapes))


def drawn(call: Call) -> Value:
    """Units of samples from probabilities: a draw tells which one, and so depends on all of them."""
    x: Value = call.args[0]
    return _leak_along(call, x, {len(x.shape) - 1}, keep=True, shape=tuple(call.shapes))


define([*DEGREES, "prod"], units=reduce, scale=reduced)
define("logsumexp", units=reduce, scale=non_homogeneous)
define(SPATIAL, units=spatial, scale=pooled, picks=True)
define("softmax _softmax log_softmax _log_softmax softmin", units=softmax, scale=non_homogeneous)
define("multinomial", units=drawn, scale=non_homogeneous)
define("glu", units=glu, scale=scaled_glu)
define("gather take_along_dim", units=gather, scale=gathered, picks=True)
