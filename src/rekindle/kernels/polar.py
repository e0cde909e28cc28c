"""Polar factor of a matrix: the nearest matrix with orthonormal rows or columns (FIRE, eq. 5).

All functions take matrices [..., out, in] in float32 or float64 and treat leading dimensions as a batch.
A zero matrix has the zero matrix as its result, and directions that a rank-deficient matrix lacks stay zero: the
polar factor is unique only on the range of W, and inventing directions would need a random draw.
"""

from __future__ import annotations

import torch
from torch import Tensor

CUBIC = (1.5, -0.5, 0.0)
QUINTIC = (2.0, -1.5, 0.5)
MUON = (3.4445, -4.7750, 2.0315)


def newton_schulz(matrices: Tensor, iterations: int = 10, coefficients: tuple[float, float, float] = CUBIC) -> Tensor:
    """Iterate X <- aX + bX(X^T X) + cX(X^T X)^2 from X = W/|W|_F (FIRE, Algorithm 1 and B.3).

    Example:
        >>> newton_schulz(torch.diag(torch.tensor([2.0, 2.0]))).diagonal().round(decimals=4).tolist()
        [1.0, 1.0]
    """
    a, b, c = coefficients
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices  # work on the small side: X X^T is [small, small]
    norm = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    x = x / torch.where(norm > 0, norm, torch.ones_like(norm))
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram) if c else b * gram) @ x
    return x.mT if tall else x


def polar_exact(matrices: Tensor) -> Tensor:
    """Return U V^T of the singular value decomposition, computed in float64; null directions give zero."""
    work = matrices.double()
    u, s, vh = torch.linalg.svd(work, full_matrices=False)
    limit = s[..., :1] * max(matrices.shape[-2:]) * torch.finfo(matrices.dtype).eps
    keep = (s > limit).to(work.dtype)
    return ((u * keep.unsqueeze(-2)) @ vh).to(matrices.dtype)
