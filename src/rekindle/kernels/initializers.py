"""The initializers by which layers draw their first weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Uniform:
    """Uniform on [low, high)."""

    low: float
    high: float

    @property
    def std(self) -> float:
        """Standard deviation."""
        return (self.high - self.low) / 12**0.5

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw float32 values on the CPU."""
        return torch.empty(shape).uniform_(self.low, self.high, generator=generator)


@dataclass(frozen=True)
class Normal:
    """Normal, with one row of zeros where an embedding pads."""

    std: float
    zero_row: int | None = None

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw float32 values on the CPU."""
        values = torch.empty(shape).normal_(0.0, self.std, generator=generator)
        if self.zero_row is not None:
            values[self.zero_row] = 0.0
        return values


@dataclass(frozen=True)
class Constant:
    """One value everywhere."""

    value: float

    @property
    def std(self) -> float:
        """Standard deviation."""
        return 0.0

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return the value; the generator is not asked."""
        return torch.full(shape, self.value)
