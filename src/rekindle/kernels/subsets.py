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


def smallest_of_all(
    tensors: Sequence[Tensor], count: int, which: int, guess: float | None = None
) -> tuple[Tensor, float]:
    """Return for one of several tensors the mask of its elements among the `count` smallest of all together.

    Of equal ones those of earlier tensors are taken first. Finding the largest magnitude that is taken is the costly
    part, and the same for all: a guess at it is checked by counting, so that a wrong one costs time and nothing else.

    Args:
        tensors: All of them.
        count: How many elements to take, from 1 to all.
        which: The tensor whose mask is wanted.
        guess: The limit, if it may be known.

    Returns:
        The mask, and the limit as a guess for the next tensor.
    """
    home = tensors[which]
    widest = max((each.dtype for each in tensors), key=lambda dtype: dtype.itemsize)
    sizes = [each.abs().reshape(-1).to(home.device, widest) for each in tensors]
    limit = guess
    counts = None if limit is None else _counts(sizes, limit)
    if counts is None or not sum(counts[0]) < count <= sum(counts[0]) + sum(counts[1]):
        limit = float(torch.kthvalue(torch.cat(sizes), count).values)
        counts = _counts(sizes, limit)
    assert limit is not None
    room = count - sum(counts[0]) - sum(counts[1][:which])
    equal = sizes[which] == limit
    mask = (sizes[which] < limit) | (equal & (equal.cumsum(0) <= room))
    return mask.reshape(home.shape), limit


def _counts(sizes: Sequence[Tensor], limit: float) -> tuple[list[int], list[int]]:
    """Return for each tensor how many magnitudes are below the limit, and how many are equal to it."""
    return [int((each < limit).sum()) for each in sizes], [int((each == limit).sum()) for each in sizes]
