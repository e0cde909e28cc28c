"""Operations on one element at a time: activations, sums, gates, masks, casts."""

from __future__ import annotations

from dataclasses import replace

from rekindle.graph.operations.registry import Call, handles
from rekindle.graph.rules import Tag, elementwise
from rekindle.graph.value import Value

SAME_TENSOR = (
    "to _to_copy clone contiguous detach detach_ alias alias_copy lift_fresh lift_fresh_copy type_as float half "
    "bfloat16 double positive conj resolve_conj resolve_neg cpu cuda"
).split()
ONE = (
    "relu relu6 gelu silu mish tanh sigmoid leaky_relu elu selu celu softplus hardtanh hardswish hardsigmoid "
    "hardshrink softshrink softsign tanhshrink threshold log_sigmoid logit rrelu rrelu_with_noise dropout "
    "native_dropout feature_dropout alpha_dropout feature_alpha_dropout exp exp2 expm1 log log2 log10 log1p neg abs "
    "sqrt rsqrt square reciprocal sign sgn round floor ceil trunc frac erf erfc erfinv sin cos tan asin acos atan sinh "
    "cosh asinh acosh atanh clamp clamp_min clamp_max clip nan_to_num isnan isinf isfinite logical_not bitwise_not "
    "i0 sinc deg2rad rad2deg polygamma lgamma digamma"
).split()
SUM = "add sub rsub".split()
GATE = "mul div true_divide multiply divide".split()
OTHER = (
    "pow maximum minimum fmax fmin where masked_fill lerp addcmul addcdiv atan2 hypot fmod remainder floor_divide "
    "clamp_tensor eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or __and__ __or__ xlogy "
    "copysign prelu nextafter heaviside threshold_backward"
).split()
CONSTANT = (
    "zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full new_empty "
    "bernoulli shape size"
).split()


@handles(*SAME_TENSOR)
def same_tensor(call: Call) -> Value:
    """A copy or a cast is the tensor itself."""
    return replace(call.args[0], shape=tuple(call.shapes))


@handles(*ONE, *SUM, *GATE, *OTHER)
def pointwise(call: Call) -> Value:
    """Join the operands element by element."""
    tag: Tag = "add" if call.op in SUM else "mul" if call.op in (*GATE, "prelu") else "other"
    shape = call.shapes[0] if isinstance(call.shapes, list) else call.shapes
    values = call.values
    if call.op == "prelu":  # the slope runs along dimension 1 of the activation
        values = [values[0], _along_channels(values[1], len(shape))]
    result = elementwise(call.trace_log, values, shape, tag, call.location)
    return [result, replace(result, unit_labels=())] if isinstance(call.shapes, list) else result  # type: ignore[return-value]


def _along_channels(slope: Value, ndim: int) -> Value:
    shape = (1, *slope.shape, *(1,) * (ndim - 2)) if ndim > 1 else slope.shape
    return replace(
        slope, shape=shape, unit_labels=tuple(f.reshape(shape) for f in slope.unit_labels), base=None, along=None
    )


@handles(*CONSTANT)
def constant(call: Call) -> Value:
    """A new tensor that only takes the shape of another."""
    return Value(tuple(call.shapes))
