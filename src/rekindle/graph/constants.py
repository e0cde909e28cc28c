"""Tensors of a model that are no parameters, and whether a trace looked at their values.

Most traces do not: running statistics may change with every step and the trace stays right. Where an operation was
understood by the values of a constant, as a permutation that picks channels, the trace is right only for those values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(eq=False)
class Constant:
    """A buffer or another tensor that a model computes with.

    Whoever looks again gets what was seen the first time, so that all of a trace is about the same values.

    Attributes:
        live: The tensor itself.
        buffer: The name under which the model has it, if it is a buffer.
        seen: Its values as they were when somebody first looked, or None.
        zeros: Where it was zero when somebody looked for nothing else, or None.
    """

    live: Tensor
    buffer: str = ""
    seen: Tensor | None = None
    zeros: Tensor | None = None

    def read(self) -> Tensor | None:
        """Return the values, on the CPU; None where there are none (a model on the meta device)."""
        if self.seen is None and self.live.device.type != "meta":
            self.seen = self.live.detach().cpu().clone()
        return self.seen

    def read_zeros(self) -> Tensor | None:
        """Return where it is zero, on the CPU; None where there are no values. Other values may change."""
        if self.zeros is None and self.live.device.type != "meta":
            self.zeros = (self.live.detach() == 0).cpu()
        return self.zeros

    @property
    def looked_at(self) -> bool:
        """Whether somebody has looked at its values."""
        return self.seen is not None or self.zeros is not None

    def holds(self, buffers: Mapping[str, Tensor]) -> bool:
        """Tell whether what was looked at is still so.

        Args:
            buffers: Those that the model has now, by name.
        """
        now = buffers.get(self.buffer) if self.buffer else self.live
        if not self.looked_at or now is None:
            return not self.looked_at
        same = self.seen is None or (now.dtype == self.seen.dtype and torch.equal(now.detach().cpu(), self.seen))
        return same and (self.zeros is None or torch.equal((now.detach() == 0).cpu(), self.zeros))
