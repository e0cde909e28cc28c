"""What mixes elements without weights: reductions, pooling, normalization layers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rekindle.graph.operations.mixing import SPATIAL, reduced_dims
from rekindle.graph.operations.registry import Call
from rekindle.graph.scaling.elementwise import join
from rekindle.graph.scaling.registry import rules
from rekindle.graph.scaling.scale_exponents import UNCHANGED, constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, compact, shrink

REDUCED = {  # degree of each result
    **dict.fromkeys("mean sum amax amin median nanmean norm linalg_vector_norm std".split(), (1.0,)),
    **{"max": (1.0, 0.0), "min": (1.0, 0.0), "var": (2.0,), "std_mean": (1.0, 1.0), "var_mean": (2.0, 1.0)},
    "var_mean_correction": (2.0, 1.0),
    **dict.fromkeys("argmax argmin any all count_nonzero".split(), (0.0,)),
}


@rules(*REDUCED, "prod")
def reduced(walk: Walk, call: Call) -> Any:
    """All that is put together keeps its proportion."""
    x: Value = call.args[0]
    if len(call.values) > 1:
        return join(walk, call, call.args[:2])
    dims = sorted(reduced_dims(call, len(x.shape)))
    one = walk.exponents.settle(walk.field(x), dims)
    degrees = REDUCED.get(call.op) or (float(math.prod(x.shape[d] for d in dims)),)
    shapes = call.shapes if isinstance(call.shapes, list) else [call.shapes]
    results = []
    for degree, shape in zip(degrees, shapes, strict=False):
        scaled = walk.exponents.product([one], [degree])
        kept = scaled if len(shape) == scaled.ndim else scaled.squeeze(tuple(dims)) if dims else scaled
        results.append(kept.expand(tuple(shape)))
    return results if isinstance(call.shapes, list) else results[0]


@rules(*SPATIAL)
def pooled(walk: Walk, call: Call) -> Any:
    """Positions are put together or resampled."""
    x: Value = call.args[0]
    walk.fix([value for value in call.values[1:] if value.relevant], call.location)
    count = int((re.findall(r"(\d)d", call.op) or ["2"])[0])
    one = walk.exponents.settle(walk.field(x), range(len(x.shape) - count, len(x.shape)))
    shapes = call.shapes if isinstance(call.shapes, list) else [call.shapes]
    return [one.expand(tuple(shapes[0])), *(constant(UNCHANGED, shape) for shape in shapes[1:])]


@rules("gather", "take_along_dim")
def gathered(walk: Walk, call: Call) -> Tensor:
    """Any element along a dimension."""
    one = walk.exponents.settle(walk.field(call.args[0]), [int(call.args[1]) % len(call.args[0].shape)])
    core = compact(shrink(one))
    return core[tuple(slice(size) for size in call.shapes)].expand(tuple(call.shapes))


@rules("batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training")
@rules("cudnn_batch_norm", "instance_norm")
def batch_norm(walk: Walk, call: Call) -> Tensor:
    """The factor before it goes into the running statistics, and the scale decides about what comes after."""
    x, weight, bias, mean, var = call.args[:5]
    channels = walk.exponents.settle(walk.field(x), [d for d in range(len(x.shape)) if d != 1]).reshape(-1)
    for statistic, degree in ((mean, 1.0), (var, 2.0)):
        if isinstance(statistic, Value):
            named = statistic.param is not None
            stored = walk.stored(str(statistic.param), statistic.shape) if named else walk.field(statistic)
            walk.exponents.tie(stored, walk.exponents.product([channels], [degree]))
    shape = [size if d == 1 else 1 for d, size in enumerate(x.shape)]
    return _scaled(walk, weight, bias, shape, x.shape)


@rules("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def layer_norm(walk: Walk, call: Call) -> Tensor:
    """Everything along the normalized dimensions keeps its proportion."""
    x: Value = call.args[0]
    normed = len(call.args[1])
    walk.exponents.settle(walk.field(x), range(len(x.shape) - normed, len(x.shape)))
    bias = call.arg(3, "bias") if "rms" not in call.op else None
    return _scaled(walk, call.arg(2, "weight"), bias, call.args[1], x.shape)


@rules("group_norm", "native_group_norm")
def group_norm(walk: Walk, call: Call) -> Tensor:
    """Everything in a group of channels keeps its proportion."""
    x: Value = call.args[0]
    plain = call.op == "group_norm"
    groups = int(call.args[1] if plain else call.args[6])
    weight, bias = (call.arg(2, "weight"), call.arg(3, "bias")) if plain else call.args[1:3]
    within = walk.field(x).reshape(x.shape[0], groups, -1)
    walk.exponents.settle(within, [2])
    return _scaled(walk, weight, bias, [x.shape[1] if d == 1 else 1 for d in range(len(x.shape))], x.shape)


def _scaled(walk: Walk, weight: Any, bias: Any, at: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Return the field after a normalization: that of its scale, and of its shift."""
    known = [walk.field(p).reshape(tuple(at)) for p in (weight, bias) if isinstance(p, Value)]
    if not isinstance(weight, Value):
        known.append(constant(UNCHANGED, at))
    return walk.exponents.tie(*known).expand(tuple(shape))
