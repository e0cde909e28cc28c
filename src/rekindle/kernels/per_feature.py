"""Sums and maxima per feature of an activation, in one pass and without a copy of it.

On the CPU `torch.linalg.vector_norm` over several dimensions is slow (up to thirty times in channels_last), so that a
large activation is taken piece by piece through a small buffer that stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rekindle.kernels.precision import wide_dtype, widened

PIECE = 1 << 18  # values in the buffer


def by_feature(x: Tensor, dim: int) -> Tensor:
    """Return an activation as [before, features, after], a view wherever its memory allows.

    Example:
        >>> by_feature(torch.zeros(8, 3, 5, 5), 1).shape
        torch.Size([8, 3, 25])
    """
    if x.is_contiguous() or dim == x.dim() - 1:
        return x.reshape(-1, x.shape[dim], x.shape[dim + 1 :].numel())
    return x.movedim(dim, -1).reshape(-1, x.shape[dim], 1)  # channels_last: a view


def total(x: Tensor) -> Tensor:
    """Return the sum per feature of [before, features, after], in at least float32."""
    return _summed(x)


def magnitude(x: Tensor) -> Tensor:
    """Return the sum of |x| per feature, in at least float32.

    Example:
        >>> magnitude(torch.tensor([[1.0, -2.0], [-3.0, 4.0]])[:, :, None])
        tensor([4., 6.])
    """
    if x.device.type != "cpu":
        return torch.linalg.vector_norm(x, 1, dim=(0, 2), dtype=wide_dtype(x.dtype))
    if x.numel() <= PIECE:
        return _summed(x.abs())
    found = torch.zeros(x.shape[1], dtype=wide_dtype(x.dtype))
    for piece in _magnitudes(x):
        found.add_(_summed(piece))
    return found


def relative(magnitude: Tensor) -> Tensor:
    """Return each unit's magnitude over the mean of its layer; zeros where all is silent.

    Example:
        >>> relative(torch.tensor([1.0, 3.0])).tolist(), relative(torch.zeros(2)).tolist()
        ([0.5, 1.5], [0.0, 0.0])
    """
    return magnitude / magnitude.mean().clamp_min(torch.finfo(magnitude.dtype).tiny)


def largest(x: Tensor) -> Tensor:
    """Return the largest |x| per feature, in at least float32.

    Example:
        >>> largest(torch.tensor([[1.0, -2.0], [-3.0, 0.0]])[:, :, None])
        tensor([3., 2.])
    """
    if not x.numel():
        return torch.zeros(x.shape[1], dtype=wide_dtype(x.dtype), device=x.device)
    if x.numel() <= PIECE or x.device.type != "cpu":
        return _peak(x.abs())
    found = torch.zeros(x.shape[1], dtype=wide_dtype(x.dtype))
    for piece in _magnitudes(x):
        torch.maximum(found, _peak(piece), out=found)
    return found


def _magnitudes(x: Tensor) -> Iterator[Tensor]:
    """Yield |x| piece by piece along the first dimension; each piece overwrites the one before."""
    rows = max(1, PIECE // x[0].numel())
    buffer = torch.empty((rows, *x.shape[1:]), dtype=x.dtype)
    for piece in x.split(rows):
        yield torch.abs(piece, out=buffer[: len(piece)])


def _summed(x: Tensor) -> Tensor:
    wide = wide_dtype(x.dtype)
    return (x[:, :, 0] if x.shape[2] == 1 else x.sum(2, dtype=wide)).sum(0, dtype=wide)


def _peak(x: Tensor) -> Tensor:
    found = (x[:, :, 0] if x.shape[2] == 1 else x.amax(2)).amax(0)
    return widened(found)
