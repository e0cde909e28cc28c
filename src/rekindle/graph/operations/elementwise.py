"""Operations on one element at a time: activations, sums, gates, masks, casts.

Units: elements at the same place belong to the same unit. Scale: what is positively homogeneous passes a factor on,
products multiply factors, sums and comparisons need equal ones, and everything else needs what it was given before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from rekindle.graph.operations.table import Call, as_it_is, define, non_homogeneous, note_product
from rekindle.graph.rules import Tag, elementwise
from rekindle.graph.scaling.scale_exponents import NEUTRAL, UNCHANGED, constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, compact

SAME_TENSOR = (
    "to _to_copy clone contiguous detach detach_ alias alias_copy lift_fresh lift_fresh_copy type_as float half "
    "bfloat16 double positive conj resolve_conj resolve_neg cpu cuda"
).split()
SUM = "add sub rsub".split()
GATE = "mul div true_divide multiply divide".split()
ZEROS = "zeros_like new_zeros".split()
FILLED = "ones_like full_like rand_like randn_like new_ones new_full empty_like new_empty".split()
DEGREES = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0}
CLAMPED = {"clamp": 2, "clip": 2, "clamp_min": 1, "clamp_max": 1, "hardtanh": 2, "threshold": 2}  # number of bounds
EPS = 1e-4  # a constant up to this, added before a root or a division, is there against zero


def same_tensor(call: Call) -> Value:
    """Units of a copy or a cast: it is the tensor itself."""
    return replace(call.args[0], shape=tuple(call.shapes))


def pointwise(call: Call) -> Value:
    """Units of everything else: the operands' elements at the same place are joined."""
    tag: Tag = "add" if call.op in SUM else "mul" if call.op in (*GATE, "prelu") else "other"
    shape = call.shapes[0] if isinstance(call.shapes, list) else call.shapes
    values = call.values
    if call.op == "prelu":  # the slope runs along dimension 1 of the activation
        values = [values[0], _along_channels(values[1], len(shape))]
    result = elementwise(call.trace_log, values, shape, tag, call.location)
    return [result, replace(result, unit_labels=())] if isinstance(call.shapes, list) else result  # type: ignore[return-value]


def _along_channels(slope: Value, ndim: int) -> Value:
    shape = (1, *slope.shape, *(1,) * (ndim - 2)) if ndim > 1 else slope.shape
    labels = tuple(each.reshape(shape) for each in slope.unit_labels)
    return replace(slope, shape=shape, unit_labels=labels, base=None, along=None)


def new_tensor(call: Call) -> Value:
    """Units of a new tensor that only takes the shape of another: none."""
    return Value(tuple(call.shapes))


def passed_on(walk: Walk, call: Call) -> Tensor:
    """Scale of what is homogeneous of degree one: the factor of each element is that of the element."""
    return walk.field(call.args[0])


def power(walk: Walk, call: Call) -> Tensor:
    """Scale of a power: that power of the factor."""
    return _power(walk, call, DEGREES[call.op])


def _power(walk: Walk, call: Call, degree: float) -> Tensor:
    """Not homogeneous of degree one, unless it is only summed up, as in a normalization written by hand."""
    x: Value = call.args[0]
    if degree != 1 and not walk.is_summed(call):
        walk.curve([x], call.location)
    return walk.exponents.product([walk.field(x)], [degree])


def any_power(walk: Walk, call: Call) -> Any:
    """Scale of a power with a given exponent; with any other it is not homogeneous."""
    base, exponent = call.args[:2]
    if isinstance(base, Value) and isinstance(exponent, (int, float)):
        return _power(walk, call, float(exponent))
    return non_homogeneous(walk, call)


def unchanged(walk: Walk, call: Call) -> Tensor:
    """Scale of a sign, which a positive factor does not change, and of new tensors."""
    return as_it_is(call)


def zeros(walk: Walk, call: Call) -> Tensor:
    """Scale of zero: in proportion to everything."""
    return constant(NEUTRAL, call.shapes)


def joined(walk: Walk, call: Call) -> Tensor:
    """Scale of a sum: summands keep their proportion."""
    return join(walk, call, call.args[:2])


def join(walk: Walk, call: Call, operands: Sequence[Any]) -> Tensor:
    """Tie operands element by element; a constant among them does not change."""
    values = [operand for operand in operands if isinstance(operand, Value)]
    fields = [walk.field(value) for value in values]
    numbers = [float(x) for x in operands if isinstance(x, (int, float))]
    constants = any(abs(number) > EPS and math.isfinite(number) for number in numbers) or any(
        not value.data and not value.sources and bool((compact(its) == UNCHANGED).any())
        for value, its in zip(values, fields, strict=True)
    )
    if constants:
        fields.append(constant(UNCHANGED, call.shapes))
        walk.curve(values, call.location)
    return walk.exponents.tie(*(its.expand(tuple(call.shapes)) for its in fields))


def compared(walk: Walk, call: Call) -> Tensor:
    """Scale of a comparison: of what keeps its proportion it stays as it is."""
    join(walk, call, call.args[:2])
    return as_it_is(call)


def chosen(walk: Walk, call: Call) -> Tensor:
    """Scale of either of two, by a mask that stays as it is."""
    mask, pair = (call.args[0], call.args[1:3]) if call.op == "where" else (call.args[1], (call.args[0], call.args[2]))
    walk.exponents.fix(walk.field(mask))
    return join(walk, call, pair)


def between(walk: Walk, call: Call) -> Tensor:
    """Scale of a mean of two with given weights."""
    if isinstance(call.args[2], Value):
        walk.fix([call.args[2]], call.location)
    return join(walk, call, call.args[:2])


def clamped(walk: Walk, call: Call) -> Any:
    """Scale of a clamp: homogeneous where every bound is zero (or nothing, or against zero)."""
    bounds = (*call.args[1 : 1 + CLAMPED[call.op]], *call.kwargs.values())
    if call.op in ("hardtanh", "threshold") and not bounds:
        return non_homogeneous(walk, call)
    free = all(b is None or (isinstance(b, (int, float)) and (abs(b) <= EPS or math.isinf(b))) for b in bounds)
    return walk.field(call.args[0]) if free else non_homogeneous(walk, call)


def multiplied(walk: Walk, call: Call) -> Any:
    """Scale of a product: the product of the factors."""
    if call.kwargs.get("rounding_mode") is not None:
        return non_homogeneous(walk, call)
    return _times(walk, call, call.args[0], call.args[1], -1.0 if "div" in call.op else 1.0)


def _times(walk: Walk, call: Call, a: Any, b: Any, power: float = 1.0) -> Tensor:
    shape = tuple(call.shapes)
    fields = [
        walk.field(x).expand(shape) if isinstance(x, Value) else constant(UNCHANGED if x else NEUTRAL, shape)
        for x in (a, b)
    ]
    result = walk.exponents.product(fields, [1.0, power])
    note_product(walk, call, a, b, result)
    return result


def added_product(walk: Walk, call: Call) -> Tensor:
    """Scale of a sum with a product: t + a * b."""
    product = _times(walk, call, call.args[1], call.args[2], -1.0 if call.op == "addcdiv" else 1.0)
    return walk.exponents.tie(walk.field(call.args[0]).expand(tuple(call.shapes)), product)


def prelu(walk: Walk, call: Call) -> Tensor:
    """Scale of a PReLU: both sides of zero keep their proportion, so the slope stays as it is."""
    walk.exponents.fix(walk.field(call.args[1]))
    return walk.field(call.args[0])


define(SAME_TENSOR, units=same_tensor, scale=passed_on)
define(
    "relu leaky_relu rrelu rrelu_with_noise abs neg dropout native_dropout feature_dropout nan_to_num deg2rad rad2deg",
    units=pointwise,
    scale=passed_on,
)
define(DEGREES, units=pointwise, scale=power)
define("pow", units=pointwise, scale=any_power)
define(
    "sign sgn isnan isinf isfinite logical_not bitwise_not logical_and logical_or logical_xor",
    units=pointwise,
    scale=unchanged,
)
define([*SUM, "maximum", "minimum", "fmax", "fmin", "hypot"], units=pointwise, scale=joined)
define("eq ne lt le gt ge", units=pointwise, scale=compared)
define("where masked_fill", units=pointwise, scale=chosen)
define("lerp", units=pointwise, scale=between)
define(CLAMPED, units=pointwise, scale=clamped)
define(GATE, units=pointwise, scale=multiplied)
define("addcmul addcdiv", units=pointwise, scale=added_product)
define("prelu", units=pointwise, scale=prelu)
define(
    "relu6 gelu silu mish tanh sigmoid elu selu celu softplus hardswish hardsigmoid hardshrink softshrink softsign "
    "tanhshrink log_sigmoid logit alpha_dropout feature_alpha_dropout exp exp2 expm1 log log2 log10 log1p round floor "
    "ceil trunc frac erf erfc erfinv sin cos tan asin acos atan sinh cosh asinh acosh atanh i0 sinc polygamma lgamma "
    "digamma atan2 fmod remainder floor_divide clamp_tensor bitwise_and bitwise_or __and__ __or__ xlogy copysign "
    "nextafter heaviside threshold_backward bernoulli",
    units=pointwise,
    scale=non_homogeneous,
)
define(ZEROS, units=new_tensor, scale=zeros)
define(FILLED, units=new_tensor, scale=unchanged)
define("randint_like shape size", units=new_tensor, scale=non_homogeneous)
