"""A weight: a tensor, or a part of one, that maps one set of units to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rekindle.core.edit import Edit
from rekindle.core.where import MatrixView, Whole

WeightRole = Literal["input", "hidden", "head", "q", "k", "v", "o", "embedding"]


@dataclass(frozen=True, eq=False)
class Weight:
    """One weight of the graph.

    Args:
        name: The tensor's name, with the role in brackets where the tensor holds several weights.
        tensor: Canonical name of the stored tensor.
        view: How to see it as matrices [batch, out, in].
        role: What it is for.
        shape: Shape of the stored tensor.
        heads: Number of attention heads along its output (q, k, v), rows ordered head by head.
        tied: Whether the tensor has a second use (embedding and head).
        gain: Under weight_norm, the name of the gain and its dimension; `tensor` is then the direction.
        computed: Whether the layer uses a value computed from this tensor (a standardised or spectrally normalised
            weight, a low-rank update), so that its effective weight cannot be set.
        module: Path of the module that applies it.
    """

    name: str
    tensor: str
    view: MatrixView
    role: WeightRole
    shape: tuple[int, ...]
    heads: int | None = None
    tied: bool = False
    gain: tuple[str, int] | None = None
    computed: bool = False
    module: str = ""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of matrices, of their rows (outputs) and columns (inputs)."""
        batch, out, in_ = self.view.read(torch.empty(self.shape, device="meta")).shape
        return batch, out, in_

    @property
    def batch(self) -> int:
        """Number of matrices: kernel positions times groups."""
        return self.sizes[0]

    @property
    def out(self) -> int:
        """Outputs of one matrix."""
        return self.sizes[1]

    @property
    def in_(self) -> int:
        """Inputs of one matrix."""
        return self.sizes[2]

    @property
    def kernel(self) -> int:
        """Number of kernel positions of a convolution, 1 for a linear layer."""
        groups = self.view.view[0] if 0 in self.view.batch else 1
        return self.batch // groups

    @property
    def fan_in(self) -> int:
        """Number of values that one output sums up."""
        return self.in_ * self.kernel

    def edits(
        self, op: Callable[..., Tensor], reason: str, solve: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Edit, ...]:
        """Return the edits that replace the matrices by `op` of them, through weight_norm where it is used.

        Args:
            op: From matrices [batch, out, in] (and their solution, if `solve` is given) to new ones.
            reason: Why.
            solve: The costly half, which weights may share; see `Edit`.
        """
        if self.gain is None:
            return (Edit(self.tensor, op, reason, self.view, solve=solve),)
        gain, dim = self.gain

        def treated(direction: Tensor, scale: Tensor) -> Tensor:
            norm = torch.norm_except_dim(direction, 2, dim)
            unit = direction / torch.where(norm > 0, norm, torch.ones_like(norm))  # no direction: no weight
            old = unit * scale.reshape(norm.shape)
            part = self.view.read(old)
            return self.view.write(old, op(part) if solve is None else op(part, solve(part)))

        def new_direction(direction: Tensor, scale: Tensor) -> Tensor:
            new = treated(direction, scale)
            gone = torch.norm_except_dim(new, 2, dim) == 0  # the gain says zero; the direction must stay one
            return torch.where(gone, direction, new)

        def new_gain(scale: Tensor, direction: Tensor) -> Tensor:
            return torch.norm_except_dim(treated(direction, scale), 2, dim).reshape(scale.shape)

        return (
            Edit(self.tensor, new_direction, reason, Whole(), reads=(gain,)),
            Edit(gain, new_gain, reason, Whole(), reads=(self.tensor,)),
        )
