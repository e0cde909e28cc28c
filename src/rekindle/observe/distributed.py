"""What several processes saw, made one, so that all of them choose alike."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def processes() -> int:
    """Return the number of processes that train together, 1 without torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def summed(values: Tensor, *, largest: bool = False) -> Tensor:
    """Return the sum over all processes (or the largest value), in one message; alone, the values themselves."""
    if processes() > 1:
        values = values.clone()
        dist.all_reduce(values, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return values
