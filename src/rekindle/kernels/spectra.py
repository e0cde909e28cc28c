"""Singular values of a batch of matrices, and what is read off them."""

from __future__ import annotations

import torch
from torch import Tensor

from rekindle.kernels.precision import widened

PIECE = 1 << 22  # values that are decomposed together: LAPACK works on a copy


def singular_values(matrices: Tensor) -> Tensor:
    """Return the singular values [batch, smaller side] of matrices [batch, out, in], descending.

    A matrix with a value that is not finite has singular values NaN. Those of half precision are in float32.

    Example:
        >>> singular_values(torch.tensor([[[3.0, 0.0], [0.0, -4.0]]]))
        tensor([[4., 3.]])
    """
    matrices = widened(matrices)
    if min(matrices.shape[1:]) == 1:  # one row or column: its length
        return torch.linalg.vector_norm(matrices, dim=(1, 2))[:, None]
    at_once = max(1, PIECE // matrices[0].numel())
    return torch.cat([_decomposed(piece) for piece in matrices.split(at_once)])


def _decomposed(matrices: Tensor) -> Tensor:
    bad = ~torch.isfinite(matrices).flatten(1).all(1)
    if not bad.any():
        return torch.linalg.svdvals(matrices)
    found = torch.linalg.svdvals(matrices.masked_fill(bad[:, None, None], 0.0))
    return found.masked_fill(bad[:, None], float("nan"))


def rank_by_energy(values: Tensor) -> Tensor:
    """Return the stable rank |W|_F^2 / |W|_2^2 of singular values [..., k], descending; zero for a zero matrix.

    Example:
        >>> rank_by_energy(torch.tensor([[2.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))
        tensor([2., 0.])
    """
    largest = values[..., 0]
    ratios = values / torch.where(largest == 0, torch.ones_like(largest), largest)[..., None]
    return ratios.square().sum(-1)


def convolution_bound(values: Tensor, groups: int = 1) -> Tensor:
    """Return a bound of the spectral norm of a layer from its matrices' singular values [groups * positions, k].

    A convolution is a sum over kernel positions of a shift times a matrix, and a shift has norm at most one, whatever
    stride and zero padding; so the sum of the matrices' norms is a bound. Groups act on separate channels: the largest
    counts. For a linear layer it is the spectral norm itself.

    Example:
        >>> convolution_bound(torch.tensor([[2.0, 1.0], [3.0, 0.0]]))
        tensor(5.)
    """
    return values[:, 0].reshape(groups, -1).sum(1).amax()
