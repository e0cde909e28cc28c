"""How well weights point where the loss wants them to go, and shrinking by it (DASH)."""

from __future__ import annotations

import torch
from torch import Tensor


def cosine(a: Tensor, b: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return the cosine between vectors that lie along `dims`, which stay with size one.

    A zero vector has no direction: its cosine is 0. Each vector is divided by its largest entry first, so that tiny
    gradients do not vanish when they are squared.

    Example:
        >>> cosine(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[0.0, 1e-30], [1.0, 1.0]]), (1,)).tolist()
        [[0.800000011920929], [0.0]]
    """
    return (_unit(a, dims) * _unit(b, dims)).sum(dims, keepdim=True)


def shrink_by_direction(weight: Tensor, direction: Tensor, floor: float, dims: tuple[int, ...]) -> Tensor:
    """Return w * clamp(cos(w, G), floor, 1) (DASH), the cosine of each vector along `dims`.

    Args:
        weight: w.
        direction: G, the averaged negative gradient, of the same shape.
        floor: Smallest factor (lambda); a zero gradient gives this one, and a zero weight stays zero.
        dims: Dimensions that one vector takes.

    Example:
        >>> w = torch.tensor([[3.0, 4.0], [3.0, 4.0]])
        >>> shrink_by_direction(w, torch.tensor([[0.0, 1.0], [0.0, -1.0]]), 0.5, (1,)).tolist()
        [[2.4000000953674316, 3.200000047683716], [1.5, 2.0]]
    """
    return weight * cosine(weight, direction, dims).clamp(floor, 1.0)


def _unit(vectors: Tensor, dims: tuple[int, ...]) -> Tensor:
    vectors = vectors / _or_one(vectors.abs().amax(dims, keepdim=True))
    return vectors / _or_one(torch.linalg.vector_norm(vectors, dim=dims, keepdim=True))


def _or_one(size: Tensor) -> Tensor:
    return torch.where(size > 0, size, torch.ones_like(size))
