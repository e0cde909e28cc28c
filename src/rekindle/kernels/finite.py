"""Whether a tensor can be computed with."""

from __future__ import annotations

import math

from torch import Tensor


def finite(tensor: Tensor) -> bool:
    """Return whether all values are finite, without a copy of the tensor; the extremes of a NaN are NaN."""
    return not tensor.numel() or all(math.isfinite(float(extreme)) for extreme in tensor.detach().aminmax())
