"""What a per-step method wants written after an optimizer's step: values that `apply.carry_out` writes, all fused.

Per-step methods act on every step, so these are lists of tensors for torch's fused kernels (`torch._foreach_*`), with
no copy for undo, no check and no synchronization with the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Multiply:
    """Each tensor times its factor: numbers as tensors without dimensions, or factors of the tensor's own shape."""

    tensors: Sequence[Tensor]
    factors: Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class Clamp:
    """Each tensor limited to [-bound, bound]."""

    tensors: Sequence[Tensor]
    bounds: Sequence[float]


@dataclass(frozen=True, eq=False)
class Replace:
    """Each tensor set to a value of its shape; the optimizer's memory of it is cleared if that is asked for."""

    tensors: Sequence[Tensor]
    values: Sequence[Tensor]
    clear_moments: bool = False


Update = Multiply | Clamp | Replace
