"""How far a matrix is from an isometry, and how far a change has moved it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rekindle.kernels.precision import widened

PIECE = 1 << 17  # values that are looked at together, so that sums need no copy of a large tensor


def squared_frobenius_error(before: Tensor, after: Tensor) -> Tensor:
    """Return SFE = |W - W'|_F^2 (FIRE, eq. 1), summed in float64 piece by piece."""
    pairs = zip(_pieces(before), _pieces(after), strict=True)
    return sum(((_wide(a) - _wide(b)).abs().square().sum() for a, b in pairs), torch.zeros((), dtype=torch.float64))


def count_changed(before: Tensor, after: Tensor) -> int:
    """Return how many values differ, piece by piece: a sum over booleans makes a copy of eight times their size."""
    pairs = zip(_pieces(before), _pieces(after), strict=True)
    return sum(int(torch.count_nonzero(a != b)) for a, b in pairs)


def frobenius_norm(values: Tensor) -> float:
    """Return |W|_F, summed in float64 piece by piece."""
    return float(sum(float(_wide(piece).abs().square().sum()) for piece in _pieces(values)) ** 0.5)


def _wide(piece: Tensor) -> Tensor:
    return piece.to(torch.complex128) if piece.is_complex() else piece.double()


def _pieces(values: Tensor) -> Iterator[Tensor]:
    """Split values, in order; a large batch matrix by matrix: kernel positions are strided and would be copied."""
    for matrix in values if values.dim() == 3 and values.numel() > PIECE else (values,):
        yield from matrix.reshape(-1).split(PIECE)


def deviation_from_isometry(matrices: Tensor, *, scale_free: bool = False) -> Tensor:
    """Return DfI = |W^T W - I|_F^2 (FIRE, 3.2) of matrices [..., out, in], on the smaller side.

    The smaller side is the one on which zero can be reached: W W^T for a wide matrix. That of half precision is in
    float32.

    Args:
        matrices: Any batch of matrices.
        scale_free: Divide each matrix by its root-mean-square singular value first, so that every multiple of an
            isometry has zero; a zero matrix keeps the size of its smaller side.

    Example:
        >>> float(deviation_from_isometry(torch.eye(3, 5)))
        0.0
        >>> round(float(deviation_from_isometry(2 * torch.eye(3, 5))), 3)
        27.0
        >>> float(deviation_from_isometry(2 * torch.eye(3, 5), scale_free=True))
        0.0
    """
    if matrices.dim() == 3 and len(matrices) > 1 and matrices[0].numel() >= PIECE:  # one Gram matrix at a time
        return torch.cat([deviation_from_isometry(one[None], scale_free=scale_free) for one in matrices])
    matrices = widened(matrices)
    wide = matrices.shape[-1] > matrices.shape[-2]
    gram = matrices @ matrices.mT if wide else matrices.mT @ matrices
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    if scale_free:
        scale = diagonal.mean(dim=-1)[..., None, None]  # mean squared singular value
        gram.div_(torch.where(scale > 0, scale, torch.ones_like(scale)))
    diagonal.sub_(1)
    return torch.linalg.vector_norm(gram, dim=(-2, -1)).square()
