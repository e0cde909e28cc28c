"""Element by element: the steepest slope of an activation, and what sums and products do."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rekindle.graph.lipschitz.own import Own, bounds, only_first, operands_of
from rekindle.graph.operations.elementwise import SAME_TENSOR
from rekindle.graph.operations.table import Call
from rekindle.graph.value import Value

STEEPEST = {  # rounded up in the last digit
    **dict.fromkeys("relu relu6 tanh softshrink hardtanh log_sigmoid".split(), 1.0),
    **dict.fromkeys("abs neg sin cos atan asinh clamp clip clamp_min clamp_max nan_to_num".split(), 1.0),
    **{"sigmoid": 0.25, "hardsigmoid": 1 / 6, "hardswish": 1.5, "gelu": 1.1291, "silu": 1.0999, "mish": 1.0886},
    **{"selu": 1.7581, "erf": 1.1284, "deg2rad": math.pi / 180, "rad2deg": 180 / math.pi},
}
DROPPED = "dropout native_dropout feature_dropout alpha_dropout feature_alpha_dropout".split()


@bounds(*STEEPEST)
def curve(call: Call) -> Own | None:
    """A function of one number is as steep as its steepest slope; bounds that depend on the input are not known."""
    return only_first(call, STEEPEST[call.op])


@bounds(*SAME_TENSOR)
def copied(call: Call) -> Own | None:
    """A copy is the tensor itself; a cast to whole numbers has steps."""
    types = [arg for arg in (*call.args, *call.kwargs.values()) if isinstance(arg, torch.dtype)]
    return only_first(call, 1.0) if all(kind.is_floating_point or kind.is_complex for kind in types) else None


@bounds(*DROPPED)
def dropped(call: Call) -> Own | None:
    """Nothing, unless it is on in evaluation mode too."""
    return None if call.arg(2, "train", True) else only_first(call, 1.0)


@bounds("leaky_relu")
def leaky_relu(call: Call) -> Own | None:
    """One above zero, the slope below."""
    return only_first(call, max(1.0, abs(float(call.arg(1, "negative_slope", 0.01)))))


@bounds("rrelu", "rrelu_with_noise")
def rrelu(call: Call) -> Own | None:
    """In evaluation mode the mean of both ends, which is not steeper than the steeper end."""
    at = 1 if call.op == "rrelu" else 2
    ends = call.arg(at, "lower", 1 / 8), call.arg(at + 1, "upper", 1 / 3)
    return only_first(call, max(1.0, *(abs(float(end)) for end in ends)))


@bounds("softplus", "celu")
def smooth(call: Call) -> Own | None:
    """One, unless softplus goes over to a line too early, which is a step, or celu has a negative alpha."""
    fits = float(call.arg(2, "threshold", 20)) >= 10 if call.op == "softplus" else float(call.arg(1, "alpha", 1)) > 0
    return only_first(call, 1.0) if fits else None


@bounds("elu")
def elu(call: Call) -> Own | None:
    """Above zero the scale, below it the slope at zero."""
    alpha, scale, inner = (
        float(call.arg(at, name, 1.0)) for at, name in ((1, "alpha"), (2, "scale"), (3, "input_scale"))
    )
    return only_first(call, max(abs(scale), abs(alpha * scale * inner))) if inner >= 0 else None


@bounds("threshold")
def threshold(call: Call) -> Own | None:
    """Continuous only if what stands below the threshold is the threshold."""
    return only_first(call, 1.0) if call.args[1] == call.args[2] else None


@bounds("prelu")
def prelu(call: Call) -> Own | None:
    """One above zero, the learned slope below."""
    slope: Value = call.args[1]
    if slope.data or not slope.is_parameter:
        return None
    return Own((1.0,), stored="slope", tensors=(str(slope.param),))


@bounds("add", "sub", "rsub", "subtract")
def added(call: Call) -> Own | None:
    """Bounds add up, each with the factor of its summand; a summand that is spread over the others is repeated."""
    alpha = abs(float(call.kwargs.get("alpha", call.args[2] if len(call.args) > 2 else 1.0)))
    scaled = [alpha, 1.0] if call.op == "rsub" else [1.0, alpha]
    pairs = zip(call.args[:2], scaled, strict=True)
    return Own(tuple(factor * _spread(arg, call) for arg, factor in pairs if _moves(arg)))


@bounds("lerp")
def between(call: Call) -> Own | None:
    """A mean of two with a given weight."""
    weight = call.args[2]
    if isinstance(weight, Value):
        return None
    pairs = zip(call.args[:2], (abs(1.0 - weight), abs(weight)), strict=True)
    return Own(tuple(factor * _spread(arg, call) for arg, factor in pairs if _moves(arg)))


@bounds("maximum", "minimum", "fmax", "fmin", "hypot")
def either(call: Call) -> Own | None:
    """No element moves farther than both operands together."""
    return Own(tuple(_spread(arg, call) for arg in call.args[:2] if _moves(arg)), apart=True)


@bounds("where", "masked_fill")
def chosen(call: Call) -> Own | None:
    """Each element from one of two; where the choice depends on the input there may be a step."""
    mask, pair = (call.args[0], call.args[1:3]) if call.op == "where" else (call.args[1], (call.args[0], call.args[2]))
    if not isinstance(mask, Value) or mask.data:
        return None
    return Own(tuple(_spread(arg, call) for arg in pair if _moves(arg)), apart=True)


@bounds("mul", "multiply", "div", "divide", "true_divide")
def multiplied(call: Call) -> Own | None:
    """Times what does not depend on the input: a number, a constant, a parameter. A product of activations has none."""
    first, second = call.args[:2]
    inverse = "div" in call.op
    if len(operands_of(call)) != 1 or call.kwargs.get("rounding_mode") is not None or (inverse and not _moves(first)):
        return None
    x, other = (first, second) if _moves(first) else (second, first)
    spread = _spread(x, call)
    if isinstance(other, Value) and other.param is not None:
        return Own((spread,), stored="inverse" if inverse else "largest", tensors=(other.param,))
    size = _size(other, inverse)
    return None if size is None else Own((spread * size,))


def _size(other: Any, inverse: bool) -> float | None:
    """Return the largest factor of a constant."""
    if isinstance(other, Value):
        known = None if other.sources else other.const
        if known is None:
            return None
        values: Tensor = known.abs().double()
        return float((1 / values.min()) if inverse else values.max())
    number = abs(float(other))
    return 1 / number if inverse else number


def _moves(arg: Any) -> bool:
    return isinstance(arg, Value) and arg.data


def _spread(value: Value, call: Call) -> float:
    """Return the factor of repeating a value over the result."""
    return math.sqrt(math.prod(call.shapes) / max(1, math.prod(value.shape)))
