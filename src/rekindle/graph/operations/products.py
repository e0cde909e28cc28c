"""Products: linear layers, matrix products, einsum.

Units: the units along the summed axis of one side meet those of the other and are read there; every other axis is
carried over (`rules.contract`). Scale: every term of a sum of products keeps its proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rekindle.graph.operations.table import Call, define, non_homogeneous, note_product
from rekindle.graph.rules import by_head, contract, elementwise, record_weight, side_labels
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.value import Value, compact, shrink, varying

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def linear(call: Call) -> Value:
    """Units of y[..., o] = sum_i x[..., i] w[o, i] + b[o]."""
    x, weight, bias = activation(call, call.args[0]), call.args[1], call.arg(2, "bias")
    if weight.opaque:
        return call.trace_log.gap(call.values, call.location)
    lead = list(LETTERS[: len(x.shape) - 1])
    return plus(call, _product(call, x, [*lead, "i"], weight, ["o", "i"][-len(weight.shape) :], call.shapes), bias)


def scaled_linear(walk: Walk, call: Call) -> Tensor:
    """Scale of a product with a weight, plus a bias."""
    x, weight, bias = call.args[0], call.args[1], call.arg(2, "bias")
    lead = [f"l{n}" for n in range(len(x.shape) - 1)]
    out = ["o", "i"][-len(weight.shape) :]
    result = contracted(walk, call, x, [*lead, "i"], weight, out, [*lead, *out[:-1]])
    return _scaled_plus(walk, result, bias)


def matmul(call: Call) -> Value:
    """Units of the matrix product of the last two dimensions, the others broadcast."""
    if call.op == "inner" and len(call.args[1].shape) > 1:
        return _inner(call, call.args[0], call.args[1])
    return _matmul(call, call.args[0], call.args[1])


def scaled_matmul(walk: Walk, call: Call) -> Any:
    """Scale of a product of matrices."""
    a, b = call.args[:2]
    if call.op == "inner" and len(b.shape) > 1:
        return non_homogeneous(walk, call)
    la, lb, lo = matmul_letters(len(a.shape), len(b.shape))
    return contracted(walk, call, a, la, b, lb, lo)


def addmm(call: Call) -> Value:
    """Units of a matrix product plus a bias: GPT-2's `Conv1D`."""
    return plus(call, _matmul(call, call.args[1], call.args[2]), call.args[0])


def scaled_addmm(walk: Walk, call: Call) -> Tensor:
    """Scale of a product of matrices, plus a bias."""
    _, a, b = call.args[:3]
    la, lb, lo = matmul_letters(len(a.shape), len(b.shape))
    return _scaled_plus(walk, contracted(walk, call, a, la, b, lb, lo), call.args[0])


def einsum(call: Call) -> Value:
    """Units of two operands in einsum's notation."""
    values = list(call.args[1])
    if len(values) != 2:
        return call.trace_log.gap(values, call.location)
    la, lb, lo = einsum_letters(call)
    return _product(call, values[0], la, values[1], lb, call.shapes, lo)


def scaled_einsum(walk: Walk, call: Call) -> Any:
    """Scale of a product in einsum's notation."""
    if len(call.args[1]) != 2:
        return non_homogeneous(walk, call)
    la, lb, lo = einsum_letters(call)
    return contracted(walk, call, call.args[1][0], la, call.args[1][1], lb, lo)


def activation(call: Call, x: Value) -> Value:
    """Return the input of a layer as an activation, also where it is learned or constant itself."""
    if x.data:
        return x
    fields: tuple[Tensor, ...]
    if x.base is not None and x.is_parameter:
        fields = (side_labels(call.trace_log, x, [len(x.shape) - 1]),)
    else:
        fields = tuple(f for n, f in enumerate(x.unit_labels) if len(x.shape) - 1 in x.dims(n))
    for labels in fields:
        call.trace_log.use(labels, "bias", call.location)
    return Value(x.shape, fields, data=True)


def _inner(call: Call, a: Value, b: Value) -> Value:
    """Units of the sums over the last dimensions of both."""
    la, lb = ([f"{side}{n}" for n in range(len(value.shape) - 1)] for side, value in (("x", a), ("y", b)))
    return _product(call, a, [*la, "s"], b, [*lb, "s"], call.shapes, [*la, *lb])


def _matmul(call: Call, a: Value, b: Value) -> Value:
    la, lb, lo = matmul_letters(len(a.shape), len(b.shape))
    return _product(call, a, la, b, lb, call.shapes, lo)


def matmul_letters(a: int, b: int) -> tuple[list[str], list[str], list[str]]:
    """Return the letters of a matrix product of values with so many dimensions, and of its result."""
    batch = LETTERS[: max(a, b, 2) - 2]
    la = [*batch[len(batch) - max(a - 2, 0) :], *(["x", "s"] if a > 1 else ["s"])]
    lb = [*batch[len(batch) - max(b - 2, 0) :], *(["s", "y"] if b > 1 else ["s"])]
    return la, lb, [*batch, *(["x"] if a > 1 else []), *(["y"] if b > 1 else [])]


def einsum_letters(call: Call) -> tuple[list[str], list[str], list[str]]:
    """Return a letter for each dimension of two operands and of the result."""
    equation, values = call.args[0].replace(" ", ""), list(call.args[1])
    inputs, _, output = equation.partition("->")
    sides = inputs.split(",")
    if "->" not in equation:
        output = "".join(sorted(c for c in set(inputs) - {",", "."} if inputs.count(c) == 1))
    dots = (
        max(len(v.shape) - len(side.replace("...", "")) for v, side in zip(values, sides, strict=True))
        if "..." in inputs
        else 0
    )
    upper = [f"<{n}>" for n in range(dots)]
    la, lb = (_spell(side, upper, len(v.shape)) for side, v in zip(sides, values, strict=True))
    return la, lb, _spell(output, upper, len(call.shapes))


def _spell(side: str, upper: list[str], ndim: int) -> list[str]:
    if "..." not in side:
        return list(side)
    before, after = side.split("...")
    count = ndim - len(before) - len(after)
    return [*before, *upper[len(upper) - count :], *after]


def _product(
    call: Call, a: Value, la: Sequence[str], b: Value, lb: Sequence[str], shape: Sequence[int], lo: Sequence[str] = ()
) -> Value:
    lo = list(lo) or [*la[:-1], *[letter for letter in lb if letter not in la]]
    result = contract(call.trace_log, a, la, b, lb, lo, shape, call.location)
    for x, lx, weight, lw in ((a, la, b, lb), (b, lb, a, la)):
        if x.data and not weight.data and weight.sources:
            _note_weight(call, x, list(lx), weight, list(lw), lo)
    if a.data and b.data:
        _attention_roles(call, a, b, list(lb), lo)
    return result


def _note_weight(call: Call, x: Value, lx: list[str], weight: Value, lw: list[str], lo: Sequence[str]) -> None:
    ins = [d for d, letter in enumerate(lw) if letter in lx and letter not in lo]
    outs = [d for d, letter in enumerate(lw) if letter in lo and letter not in lx]
    if ins and outs:
        record_weight(call.trace_log, weight, outs, ins, x, call.location)


def _attention_roles(call: Call, a: Value, b: Value, lb: list[str], lo: Sequence[str]) -> None:
    """Softmaxed scores times values: now it is known what were queries, keys and values."""
    if a.product is None or not a.product.softmaxed:
        return
    call.trace_log.roles += [("q", labels) for labels in a.product.left] + [("k", labels) for labels in a.product.right]
    for labels in b.unit_labels:
        along = varying(labels)
        inside = [lb[d] == lo[-1] for d in range(len(lb))]
        if any(inside[d] for d in along):
            call.trace_log.roles.append(("v", by_head(labels, inside)))


def plus(call: Call, value: Value, bias: Value | None) -> Value:
    """Add the bias of a layer, if it has one."""
    return value if bias is None else elementwise(call.trace_log, [value, bias], value.shape, "add", call.location)


def _scaled_plus(walk: Walk, result: Tensor, bias: Value | None) -> Tensor:
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


define("linear", units=linear, scale=scaled_linear)
define("matmul mm bmm mv dot vdot inner", units=matmul, scale=scaled_matmul)
define("addmm baddbmm addmv", units=addmm, scale=scaled_addmm)
define("addbmm", units=addmm, scale=non_homogeneous)
define("einsum", units=einsum, scale=scaled_einsum)
