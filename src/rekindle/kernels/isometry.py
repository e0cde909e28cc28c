"""How far a matrix is from an isometry, and how far a change has moved it."""

from __future__ import annotations

import torch
from torch import Tensor

PIECE = 1 << 20  # values that are looked at together, so that sums need no copy of a large tensor


def squared_frobenius_error(before: Tensor, after: Tensor) -> Tensor:
    """Return SFE = |W - W'|_F^2 (FIRE, eq. 1), summed in float64 piece by piece."""
    pairs = zip(before.reshape(-1).split(PIECE), after.reshape(-1).split(PIECE), strict=True)
    return sum(((a.double() - b.double()).square().sum() for a, b in pairs), torch.zeros((), dtype=torch.float64))


def frobenius_norm(values: Tensor) -> float:
    """Return |W|_F, summed in float64 piece by piece."""
    return float(sum(float(piece.double().square().sum()) for piece in values.reshape(-1).split(PIECE)) ** 0.5)


def deviation_from_isometry(matrices: Tensor, *, scale_free: bool = False) -> Tensor:
    """Return DfI = |W^T W - I|_F^2 (FIRE, 3.2) of matrices [..., out, in], on the smaller side.

    The smaller side is the one on which zero can be reached: W W^T for a wide matrix.

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
    wide = matrices.shape[-1] > matrices.shape[-2]
    gram = matrices @ matrices.mT if wide else matrices.mT @ matrices
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    if scale_free:
        scale = diagonal.mean(dim=-1)[..., None, None]  # mean squared singular value
        gram.div_(torch.where(scale > 0, scale, torch.ones_like(scale)))
    diagonal.sub_(1)
    return torch.linalg.vector_norm(gram, dim=(-2, -1)).square()
