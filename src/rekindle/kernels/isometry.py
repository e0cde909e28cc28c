"""How far a matrix is from an isometry, and how far a change has moved it."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_frobenius_error(before: Tensor, after: Tensor) -> Tensor:
    """Return SFE = |W - W'|_F^2 (FIRE, eq. 1), summed in float64."""
    return (before.double() - after.double()).square().sum()


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
        >>> float(deviation_from_isometry(2 * torch.eye(3, 5))), float(
        ...     deviation_from_isometry(2 * torch.eye(3, 5), scale_free=True)
        ... )
        (27.0, 0.0)
    """
    if scale_free:
        norm = torch.linalg.vector_norm(matrices, dim=(-2, -1), keepdim=True)
        scale = norm / min(matrices.shape[-2:]) ** 0.5
        matrices = matrices / torch.where(scale > 0, scale, torch.ones_like(scale))
    wide = matrices.shape[-1] > matrices.shape[-2]
    gram = matrices @ matrices.mT if wide else matrices.mT @ matrices
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return (gram - identity).square().sum(dim=(-2, -1))
