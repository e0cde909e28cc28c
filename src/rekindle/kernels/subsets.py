"""Subsets of elements: a fixed number at random, each with a probability, or those of smallest magnitude."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def share(size: int, fraction: float) -> int:
    """Return the number of elements that is nearest to a fraction of `size`; a half is rounded up.

    Example:
        >>> share(7, 0.2), share(2, 0.2), share(5, 0.5)
        (1, 0, 3)
    """
    return math.floor(fraction * size + 0.5)


def random_subset(size: int, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` different positions below `size`, every subset equally likely, in rising order."""
    return torch.randperm(size, generator=generator)[:count].sort().values


def random_mask(shape: Sequence[int], probability: float, generator: torch.Generator) -> Tensor:
    """Return a mask on the CPU in which each element is true with this probability, independently."""
    return torch.rand(tuple(shape), generator=generator) < probability


def smallest(values: Tensor, count: int) -> Tensor:
    """Return a mask of the `count` elements of smallest magnitude; of equal ones the first are taken.

    Exactly `count`, on every device the same: a sort that is not stable would choose among equals as it likes.

    Example:
        >>> smallest(torch.tensor([[3.0, -1.0], [1.0, 0.5]]), 2)
        tensor([[False,  True],
                [False,  True]])
    """
    size = values.abs().reshape(-1)
    if count <= 0 or count >= size.numel():
        return torch.full(values.shape, count > 0, dtype=torch.bool, device=values.device)
    limit = torch.kthvalue(size, count).values
    below, equal = size < limit, size == limit
    room = count - below.sum()
    return (below | (equal & (equal.cumsum(0) <= room))).reshape(values.shape)


def smallest_of_all(tensors: Sequence[Tensor], count: int, which: int) -> Tensor:
    """Return for one of several tensors the mask of its elements among the `count` smallest of all together."""
    home = tensors[which]
    mask = smallest(torch.cat([each.abs().reshape(-1).to(home.device) for each in tensors]), count)
    return mask.split([each.numel() for each in tensors])[which].reshape(home.shape)
