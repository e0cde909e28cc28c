"""Half precision, and less, is computed in float32 and rounded once, at the end."""

from __future__ import annotations

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
FULL = (torch.float32, torch.float64)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type to compute in: float32 for half precision and less, else the type itself.

    Example:
        >>> wide_dtype(torch.bfloat16), wide_dtype(torch.float64)
        (torch.float32, torch.float64)
    """
    return torch.float32 if dtype.is_floating_point and dtype not in FULL else dtype


def widened(tensor: Tensor) -> Tensor:
    """Return a tensor in the type to compute in; the tensor itself where that is its own."""
    return tensor.to(wide_dtype(tensor.dtype))
