"""What several processes saw, made one, so that all of them choose alike."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor


def processes() -> int:
    """Return the number of processes that train together, 1 without torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def average(values: Mapping[str, Tensor], *, largest: bool = False) -> dict[str, Tensor]:
    """Return the mean over all processes (or the largest value), in one message; alone, the values themselves."""
    if processes() == 1 or not values:
        return dict(values)
    flat = torch.cat([value.reshape(-1) for value in values.values()])
    dist.all_reduce(flat, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    if not largest:
        flat /= processes()
    pieces = flat.split([value.numel() for value in values.values()])
    return {name: piece.reshape(value.shape) for (name, value), piece in zip(values.items(), pieces, strict=True)}
