"""Element by element: what passes a factor on, what multiplies factors, what needs equal ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rekindle.graph.operations.elementwise import SAME_TENSOR
from rekindle.graph.operations.registry import Call
from rekindle.graph.scaling.registry import as_it_is, non_homogeneous, note_product, rules
from rekindle.graph.scaling.scale_exponents import NEUTRAL, UNCHANGED, constant
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, compact

EPS = 1e-4  # a constant up to this, added before a root or a division, is there against zero
PASSED_ON = (  # positively homogeneous of degree one, element by element
    *SAME_TENSOR,
    *"relu leaky_relu rrelu rrelu_with_noise abs neg dropout native_dropout feature_dropout nan_to_num deg2rad".split(),
    *"rad2deg tril triu real".split(),
)
DEGREES = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0}
SIGNS = "sign sgn isnan isinf isfinite logical_not bitwise_not logical_and logical_or logical_xor".split()
COMPARED = "eq ne lt le gt ge".split()
JOINED = "add sub rsub maximum minimum fmax fmin hypot".split()
CLAMPED = {"clamp": 2, "clip": 2, "clamp_min": 1, "clamp_max": 1, "hardtanh": 2, "threshold": 2}


@rules(*PASSED_ON)
def passed_on(walk: Walk, call: Call) -> Tensor:
    """The factor of each element is that of the element."""
    return walk.field(call.args[0])


@rules(*DEGREES)
def power(walk: Walk, call: Call) -> Tensor:
    """A power has a power of the factor."""
    return _power(walk, call, DEGREES[call.op])


def _power(walk: Walk, call: Call, degree: float) -> Tensor:
    """Not homogeneous of degree one, unless it is only summed up, as in a normalization written by hand."""
    x: Value = call.args[0]
    if degree != 1 and not walk.is_summed(call):
        walk.curve([x], call.location)
    return walk.exponents.product([walk.field(x)], [degree])


@rules("pow")
def any_power(walk: Walk, call: Call) -> Any:
    """A power with a given exponent; any other is not homogeneous."""
    base, exponent = call.args[:2]
    if isinstance(base, Value) and isinstance(exponent, (int, float)):
        return _power(walk, call, float(exponent))
    return non_homogeneous(walk, call)


@rules(*SIGNS)
def sign(walk: Walk, call: Call) -> Tensor:
    """A positive factor does not change a sign."""
    return as_it_is(call)


@rules("zeros_like", "new_zeros")
def zeros(walk: Walk, call: Call) -> Tensor:
    """Zero is in proportion to everything."""
    return constant(NEUTRAL, call.shapes)


@rules("ones_like", "full_like", "rand_like", "randn_like", "new_ones", "new_full", "empty_like", "new_empty")
def new(walk: Walk, call: Call) -> Tensor:
    """A new tensor that only takes the shape of another."""
    return as_it_is(call)


@rules(*JOINED)
def joined(walk: Walk, call: Call) -> Tensor:
    """Summands keep their proportion."""
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


@rules(*COMPARED)
def compared(walk: Walk, call: Call) -> Tensor:
    """A comparison of what keeps its proportion stays as it is."""
    join(walk, call, call.args[:2])
    return as_it_is(call)


@rules("where", "masked_fill")
def chosen(walk: Walk, call: Call) -> Tensor:
    """Either of two, by a mask that stays as it is."""
    mask, pair = (call.args[0], call.args[1:3]) if call.op == "where" else (call.args[1], (call.args[0], call.args[2]))
    walk.exponents.fix(walk.field(mask))
    return join(walk, call, pair)


@rules("lerp")
def between(walk: Walk, call: Call) -> Tensor:
    """A mean of two with given weights."""
    if isinstance(call.args[2], Value):
        walk.fix([call.args[2]], call.location)
    return join(walk, call, call.args[:2])


@rules(*CLAMPED)
def clamped(walk: Walk, call: Call) -> Any:
    """Homogeneous where every bound is zero (or nothing, or against zero)."""
    bounds = (*call.args[1 : 1 + CLAMPED[call.op]], *call.kwargs.values())
    if call.op in ("hardtanh", "threshold") and not bounds:
        return non_homogeneous(walk, call)
    free = all(b is None or (isinstance(b, (int, float)) and (abs(b) <= EPS or math.isinf(b))) for b in bounds)
    return walk.field(call.args[0]) if free else non_homogeneous(walk, call)


@rules("mul", "multiply", "div", "divide", "true_divide")
def multiplied(walk: Walk, call: Call) -> Any:
    """A product has the product of the factors."""
    if call.kwargs.get("rounding_mode") is not None:
        return non_homogeneous(walk, call)
    power = -1.0 if "div" in call.op else 1.0
    return _times(walk, call, call.args[0], call.args[1], power)


def _times(walk: Walk, call: Call, a: Any, b: Any, power: float = 1.0) -> Tensor:
    shape = tuple(call.shapes)
    fields = [
        walk.field(x).expand(shape) if isinstance(x, Value) else constant(UNCHANGED if x else NEUTRAL, shape)
        for x in (a, b)
    ]
    result = walk.exponents.product(fields, [1.0, power])
    note_product(walk, call, a, b, result)
    return result


@rules("addcmul", "addcdiv")
def added_product(walk: Walk, call: Call) -> Tensor:
    """A sum with a product: t + a * b."""
    product = _times(walk, call, call.args[1], call.args[2], -1.0 if call.op == "addcdiv" else 1.0)
    return walk.exponents.tie(walk.field(call.args[0]).expand(tuple(call.shapes)), product)


@rules("prelu")
def prelu(walk: Walk, call: Call) -> Tensor:
    """Both sides of zero keep their proportion: the slope stays as it is."""
    walk.exponents.fix(walk.field(call.args[1]))
    return walk.field(call.args[0])


@rules("glu")
def glu(walk: Walk, call: Call) -> Tensor:
    """One half, times a gate of the other that stays as it is."""
    half, gate = walk.field(call.args[0]).chunk(2, int(call.arg(1, "dim", -1)))
    walk.exponents.fix(gate)
    walk.curve([call.args[0]], call.location)
    return half
