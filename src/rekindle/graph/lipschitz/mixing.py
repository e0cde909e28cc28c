"""What moves, repeats, pools or reduces elements."""

from __future__ import annotations

import math
import re

import torch

from rekindle.graph.lipschitz.own import Own, bounds, only_first, operands_of
from rekindle.graph.lipschitz.windows import most_windows, nonnegative_bound, several
from rekindle.graph.operations.mixing import reduced_dims
from rekindle.graph.operations.rearrange import PERMUTE, VIEW
from rekindle.graph.operations.table import Call
from rekindle.graph.value import Value

PIECES = "split split_with_sizes chunk unbind tensor_split".split()
MOVED = (
    *PERMUTE,
    *VIEW,
    *PIECES,
    *"unsqueeze squeeze slice select narrow flip roll".split(),
    *"pixel_shuffle pixel_unshuffle channel_shuffle diagonal view_as reshape_as atleast_1d atleast_2d rot90".split(),
    *"tril triu".split(),
)
REPEATED = "expand expand_as expand_copy broadcast_to repeat tile".split()
RESAMPLED = (  # linear, with weights that are not negative
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "_adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d upsample_linear1d upsample_bilinear2d upsample_trilinear3d "
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
).split()


@bounds(*MOVED)
def moved(call: Call) -> Own | None:
    """Elements change places, or some are left out."""
    return only_first(call, 1.0)


@bounds(*REPEATED)
def repeated(call: Call) -> Own | None:
    """Every element stands in the result equally often."""
    return only_first(call, math.sqrt(math.prod(call.shapes) / math.prod(call.args[0].shape)))


@bounds("cat", "concat", "concatenate", "stack", "hstack", "vstack")
def joined(call: Call) -> Own | None:
    """Operands stand beside one another."""
    return Own((1.0,) * len(operands_of(call)), apart=True)


@bounds("constant_pad_nd")
def padded(call: Call) -> Own | None:
    """Constants do not move."""
    return only_first(call, 1.0)


@bounds("pad")
def padded_by(call: Call) -> Own | None:
    """Constants, or elements that are repeated: those read most often decide."""
    return only_first(call, 1.0) if call.arg(2, "mode", "constant") == "constant" else _resampled(call, "pad")


@bounds(*RESAMPLED)
def resampled(call: Call) -> Own | None:
    """Averages, repetitions and interpolations of positions."""
    return _resampled(call, call.op)


def _resampled(call: Call, op: str) -> Own | None:
    """Run the operation itself on one channel of ones: its weights are not negative, so their sums say it all."""
    shape = call.args[0].shape
    last = len(call.args[1]) // 2 if op == "pad" else _positions(op)
    ones = torch.ones([1] * (len(shape) - last) + list(shape[len(shape) - last :]), dtype=torch.float64)
    return only_first(call, nonnegative_bound(lambda x: call.target(x, *call.args[1:], **call.kwargs), ones))


@bounds("unfold")
def unfolded(call: Call) -> Own | None:
    """Windows along a dimension: an element stands in as many as hold it."""
    size, dim = call.args[0].shape, int(call.args[1]) % len(call.args[0].shape)
    return only_first(call, math.sqrt(most_windows(size[dim], call.shapes[dim], call.args[2], call.args[3])))


@bounds("max_pool1d", "max_pool2d", "max_pool3d")
@bounds("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pooled(call: Call) -> Own | None:
    """An element can be the largest of every window that it is in; reached where it is."""
    count = _positions(call.op)
    sizes, outputs = call.args[0].shape[-count:], _first_shape(call)[-count:]
    kernel = several(call.args[1], count)
    stride = several(call.arg(2, "stride") or kernel, count)
    padding, dilation = several(call.arg(3, "padding", 0), count), several(call.arg(4, "dilation", 1), count)
    each = zip(sizes, outputs, kernel, stride, padding, dilation, strict=True)
    return only_first(call, math.sqrt(math.prod(most_windows(*one) for one in each)))


@bounds("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pooled(call: Call) -> Own | None:
    """The same, with windows from i n/m rounded down to (i + 1) n/m rounded up."""
    count = _positions(call.op)
    most = 1
    for size, outputs in zip(call.args[0].shape[-count:], _first_shape(call)[-count:], strict=True):
        spans = [(i * size // outputs, -(-(i + 1) * size // outputs)) for i in range(outputs)]
        most *= max(sum(start <= place < end for start, end in spans) for place in range(size))
    return only_first(call, math.sqrt(most))


@bounds("mean", "sum", "amax", "amin", "logsumexp", "linalg_vector_norm", "norm")
def reduced(call: Call) -> Own | None:
    """Of n elements the mean has 1/sqrt(n), the sum sqrt(n); the largest, their length and logsumexp have 1."""
    x: Value = call.args[0]
    power = call.arg(1, "p" if call.op == "norm" else "ord", 2) if "norm" in call.op else 2
    if power is not None and float(power) != 2:
        return None
    count = math.prod(x.shape[d] for d in reduced_dims(call, len(x.shape)))
    return only_first(call, {"mean": 1 / math.sqrt(count), "sum": math.sqrt(count)}.get(call.op, 1.0))


@bounds("softmax", "_softmax", "softmin")
def softmax(call: Call) -> Own | None:
    """The Jacobian diag(p) - p p^T has no eigenvalue above max 2 p (1 - p), by Gershgorin's circles."""
    return only_first(call, 0.5)


def _positions(op: str) -> int:
    return int(re.findall(r"(\d)d", op)[0])


def _first_shape(call: Call) -> tuple[int, ...]:
    return tuple(call.shapes[0] if isinstance(call.shapes, list) else call.shapes)
