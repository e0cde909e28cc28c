"""Products: every term of a sum of products keeps its proportion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rekindle.graph.operations.products import einsum_letters, matmul_letters
from rekindle.graph.operations.registry import Call
from rekindle.graph.scaling.registry import non_homogeneous, note_product, rules
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, compact, shrink


@rules("linear")
def linear(walk: Walk, call: Call) -> Tensor:
    """A product with a weight, plus a bias."""
    x, weight, bias = call.args[0], call.args[1], call.arg(2, "bias")
    lead = [f"l{n}" for n in range(len(x.shape) - 1)]
    out = ["o", "i"][-len(weight.shape) :]
    result = contracted(walk, call, x, [*lead, "i"], weight, out, [*lead, *out[:-1]])
    return _plus(walk, result, bias)


@rules("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner")
def matmul(walk: Walk, call: Call) -> Any:
    """A product of matrices."""
    a, b = call.args[:2]
    if call.op == "inner" and len(b.shape) > 1:
        return non_homogeneous(walk, call)
    la, lb, lo = matmul_letters(len(a.shape), len(b.shape))
    return contracted(walk, call, a, la, b, lb, lo)


@rules("addmm", "baddbmm", "addmv")
def addmm(walk: Walk, call: Call) -> Tensor:
    """A product of matrices, plus a bias."""
    _, a, b = call.args[:3]
    la, lb, lo = matmul_letters(len(a.shape), len(b.shape))
    return _plus(walk, contracted(walk, call, a, la, b, lb, lo), call.args[0])


@rules("einsum")
def einsum(walk: Walk, call: Call) -> Any:
    """A product in einsum's notation."""
    if len(call.args[1]) != 2:
        return non_homogeneous(walk, call)
    la, lb, lo = einsum_letters(call)
    return contracted(walk, call, call.args[1][0], la, call.args[1][1], lb, lo)


def _plus(walk: Walk, result: Tensor, bias: Value | None) -> Tensor:
    return result if bias is None else walk.exponents.tie(result, walk.field(bias).expand(result.shape))


def contracted(
    walk: Walk, call: Call, a: Value, la: Sequence[str], b: Value, lb: Sequence[str], lo: Sequence[str]
) -> Tensor:
    """Products along the letters that the result lacks are summed, and keep their proportion."""
    letters = [*lo, *(letter for letter in dict.fromkeys([*la, *lb]) if letter not in lo)]
    wide = walk.exponents.product(
        [_spread(walk.field(a), la, letters), _spread(walk.field(b), lb, letters)], [1.0, 1.0]
    )
    one = walk.exponents.settle(wide, range(len(lo), len(letters)))
    result = one.reshape(one.shape[: len(lo)]) if len(letters) > len(lo) else one
    note_product(walk, call, a, b, result)
    return result.expand(tuple(call.shapes)) if not isinstance(call.shapes, list) else result


def _spread(labels: Tensor, own: Sequence[str], letters: Sequence[str]) -> Tensor:
    core = compact(shrink(labels)).permute([list(own).index(letter) for letter in letters if letter in own])
    return core.reshape([core.shape[[c for c in letters if c in own].index(x)] if x in own else 1 for x in letters])


@rules("conv1d", "conv2d", "conv3d")
def convolution(walk: Walk, call: Call) -> Tensor:
    """Channels of the input meet the weight's second dimension, group by group."""
    return _convolved(walk, call, int(call.arg(6, "groups", 1)), transposed=False)


@rules("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(walk: Walk, call: Call) -> Tensor:
    """As a convolution, with input and output of the weight exchanged."""
    return _convolved(walk, call, int(call.arg(6, "groups", 1)), transposed=True)


@rules("convolution", "_convolution")
def any_convolution(walk: Walk, call: Call) -> Tensor:
    """Either of the two."""
    return _convolved(walk, call, int(call.arg(8, "groups", 1)), transposed=bool(call.arg(6, "transposed", False)))


def _convolved(walk: Walk, call: Call, groups: int, transposed: bool) -> Tensor:
    x, weight, bias = call.args[0], call.args[1], call.arg(2, "bias")
    kernel = len(weight.shape) - 2
    channel = len(x.shape) - kernel - 1
    pixels = walk.exponents.settle(walk.field(x), range(channel + 1, len(x.shape)))
    taps = walk.exponents.settle(walk.field(weight), range(2, len(weight.shape))).reshape(weight.shape[:2])
    batch = x.shape[0] if channel else 1
    inputs = pixels.reshape(batch, groups, 1, -1)  # [batch, groups, out, in]
    matrix = taps.reshape(groups, -1, weight.shape[1])  # [groups, out, in], exchanged if transposed
    terms = walk.exponents.product([inputs, (matrix.transpose(1, 2) if transposed else matrix)[None]], [1.0, 1.0])
    out = walk.exponents.settle(terms, [3]).reshape(batch, -1)
    if bias is not None:
        out = walk.exponents.tie(out, walk.field(bias))
    lead = out if channel else out[0]
    note_product(walk, call, x, weight, out)
    return lead.reshape(*lead.shape, *(1,) * kernel).expand(tuple(call.shapes))


@rules("embedding")
def embedding(walk: Walk, call: Call) -> Tensor:
    """Every row of the table keeps its proportion to the others."""
    rows = walk.exponents.settle(walk.field(call.args[0]), [0])
    return rows.reshape(-1).expand(tuple(call.shapes))


@rules("_weight_norm", "_weight_norm_interface")
def weight_norm(walk: Walk, call: Call) -> Any:
    """W = g v/|v|: the gain decides; along each direction everything keeps its proportion."""
    direction, gain = call.args[0], call.args[1]
    dim = int(call.arg(2, "dim", 0))
    walk.exponents.settle(walk.field(direction), [d for d in range(len(direction.shape)) if d != dim])
    result = walk.field(gain).expand(direction.shape)
    return [result, walk.field(gain)] if isinstance(call.shapes, list) else result


@rules(
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_efficient_attention",
)
def attention(walk: Walk, call: Call) -> Any:
    """softmax(q k^T) v: the scores stay as they are, the values carry their factor."""
    query, key, value = call.args[:3]
    many = isinstance(call.shapes, list)
    shape = call.shapes[0] if many else call.shapes
    times = max(query.shape[-3] // key.shape[-3], 1) if len(query.shape) > 2 else 1  # grouped queries share a key
    keys, values = (_repeated(walk.field(x), times) for x in (key, value))
    terms = walk.exponents.product([walk.field(query).unsqueeze(-2), keys.unsqueeze(-3)], [1.0, 1.0])
    walk.exponents.fix(terms)
    walk.curve([query, key], call.location)
    mask = call.arg(3, "attn_mask")
    if isinstance(mask, Value):
        walk.fix([mask], call.location)
    result = walk.exponents.settle(values, [values.ndim - 2]).expand(tuple(shape))
    return [result] if many else result


def _repeated(labels: Tensor, times: int) -> Tensor:
    return labels if times == 1 else shrink(torch.repeat_interleave(labels, times, dim=-3))
