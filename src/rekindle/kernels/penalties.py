"""Penalties on weights with their gradients written out: one node of the autograd graph, however many tensors.

Products are taken in the weights' own precision (at least float32), also inside autocast.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from rekindle.kernels.precision import HALF, widened


def squared_distance(tensors: Sequence[Tensor], starts: list[Tensor] | None, factor: float) -> Tensor:
    """Return factor * sum |w - w0|^2 over all tensors; w0 = 0 if `starts` is None.

    Example:
        >>> float(squared_distance([torch.tensor([3.0, 4.0])], None, 0.5))
        12.5
    """
    return _SquaredDistance.apply(factor, starts, *tensors)


def parseval(matrices: Sequence[Tensor], scale: float, factor: float) -> Tensor:
    """Return factor * sum |W W^T - scale I|_F^2 of matrices [..., out, in], each on its smaller side.

    Example:
        >>> round(parseval([2 * torch.eye(3, 5), torch.eye(5, 3)], 1.0, 0.1).item(), 4)  # 0.1 * 3 * (4 - 1)^2
        2.7
    """
    return _Parseval.apply(scale, factor, *matrices)


def spectral(
    matrices: Sequence[Tensor], vectors: Sequence[Tensor], additive: Sequence[Tensor], power: float, factor: float
) -> Tensor:
    """Return factor * (sum (s^power - 1)^2 over matrices + sum |b|^(2 power) over additive tensors).

    s = |W^T u| with u the unit vector that stands for the largest singular value; it counts as a constant, and then
    the gradient of s is u v^T with v = W^T u / s.

    Args:
        matrices: [..., out, in].
        vectors: The u of each, [..., out].
        additive: Biases and shifts.
        power: At least 1.
        factor: Multiplies the sum.

    Example:
        >>> float(spectral([2 * torch.eye(2, 3)], [torch.tensor([1.0, 0.0])], [torch.tensor([3.0])], 1, 0.5))
        5.0
    """
    sizes = (len(matrices), list(vectors), power, factor)
    return _Spectral.apply(sizes, *matrices, *additive)


@torch.no_grad()
def power_iteration(matrices: Sequence[Tensor], vectors: Sequence[Tensor]) -> list[Tensor]:
    """Return u <- W v / |W v| with v = W^T u / |W^T u|; a vector that W sends to zero stays what it is.

    Example:
        >>> (u,) = power_iteration([torch.diag(torch.tensor([2.0, 1.0]))], [torch.tensor([0.6, 0.8])])
        >>> [round(float(x), 3) for x in u]  # (2.4, 0.8) over its length
        [0.949, 0.316]
    """
    with _own_precision(matrices):
        wide = [widened(matrix) for matrix in matrices]
        moved = [_times(_times(u, w), w.mT) for u, w in zip(vectors, wide, strict=True)]
    lengths = [torch.linalg.vector_norm(new, dim=-1, keepdim=True) for new in moved]
    return [
        torch.where(length > 0, new / length, old) for new, length, old in zip(moved, lengths, vectors, strict=True)
    ]


class _SquaredDistance(Function):
    @staticmethod
    def forward(ctx: Any, factor: float, starts: list[Tensor] | None, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        ctx.factor, ctx.starts = factor, starts
        ctx.moved = None if starts is None else torch._foreach_sub(tensors, starts)
        return factor * _sum_of_squares(ctx.moved or tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        by = upstream * (2 * ctx.factor)
        if ctx.starts is None:
            return None, None, *torch._foreach_mul(ctx.saved_tensors, by)
        # The differences become the gradients: new memory costs more than the arithmetic. A second backward pass
        # through the same graph finds them gone and takes them again.
        gradients, ctx.moved = ctx.moved, None
        if gradients is None:
            gradients = torch._foreach_sub(ctx.saved_tensors, ctx.starts)
        torch._foreach_mul_(gradients, by)
        return None, None, *gradients


class _Parseval(Function):
    @staticmethod
    def forward(ctx: Any, scale: float, factor: float, *matrices: Tensor) -> Tensor:
        ctx.save_for_backward(*matrices)
        ctx.factor = factor
        with _own_precision(matrices):
            ctx.grams = [w @ w.mT if _is_wide(w) else w.mT @ w for w in map(widened, matrices)]
        torch._foreach_sub_([gram.diagonal(dim1=-2, dim2=-1) for gram in ctx.grams], scale)
        return factor * _sum_of_squares(ctx.grams)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        """4 factor (W W^T - s I) W: the Gram matrix of the forward pass serves again."""
        matrices = ctx.saved_tensors
        grams = torch._foreach_mul(ctx.grams, upstream * (4 * ctx.factor))
        with _own_precision(matrices):
            pairs = zip(map(widened, matrices), grams, strict=True)
            gradients = [gram @ w if _is_wide(w) else w @ gram for w, gram in pairs]
        return None, None, *gradients


class _Spectral(Function):
    @staticmethod
    def forward(ctx: Any, sizes: tuple[int, list[Tensor], float, float], *tensors: Tensor) -> Tensor:
        count, vectors, power, factor = ctx.sizes = sizes
        matrices, additive = tensors[:count], tensors[count:]
        with _own_precision(tensors):
            ctx.rows = [_times(u, widened(w)) for u, w in zip(vectors, matrices, strict=True)]  # [..., in]
        ctx.lengths = [torch.linalg.vector_norm(row, dim=-1) for row in ctx.rows]  # [...]
        ctx.save_for_backward(*additive)
        terms = [(length.pow(power) - 1).square().sum() for length in ctx.lengths]
        if additive:
            ctx.norms = _norms(additive)
            terms.append(torch.stack(ctx.norms).pow(2 * power).sum())
        return factor * torch.stack(terms).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        _, vectors, power, factor = ctx.sizes
        by = upstream * (2 * power * factor)
        gradients = []
        for u, row, s in zip(vectors, ctx.rows, ctx.lengths, strict=True):
            slope = by * (s.pow(power) - 1) * s.pow(power - 1) / torch.where(s > 0, s, torch.ones_like(s))
            gradients.append(u.unsqueeze(-1) * (row * slope.unsqueeze(-1)).unsqueeze(-2))  # u v^T
        if ctx.saved_tensors:
            slopes = by * torch.stack(ctx.norms).pow(2 * power - 2)
            gradients += torch._foreach_mul(ctx.saved_tensors, list(slopes.unbind()))
        return None, *gradients


def _sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    norms = torch.stack(_norms(tensors))
    return torch.dot(norms, norms)


def _norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return |w| of each tensor; all of one precision, at least float32."""
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) == 1 and not kinds & set(HALF):
        return list(torch._foreach_norm(list(tensors)))
    widest = torch.float64 if torch.float64 in kinds else torch.float32
    return [torch.linalg.vector_norm(tensor, dtype=widest) for tensor in tensors]


def _is_wide(matrix: Tensor) -> bool:
    return matrix.shape[-1] >= matrix.shape[-2]


def _times(vector: Tensor, matrix: Tensor) -> Tensor:
    """Return W^T u for u [..., out] and W [..., out, in]."""
    return (vector.unsqueeze(-2) @ matrix).squeeze(-2)


def _own_precision(tensors: Sequence[Tensor]) -> contextlib.AbstractContextManager[Any]:
    kind = tensors[0].device.type if tensors else "cpu"
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else contextlib.nullcontext()
