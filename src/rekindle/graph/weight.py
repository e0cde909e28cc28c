"""A weight: a tensor, or a part of one, that maps one set of units to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from rekindle.graph.regions import MatrixView

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
        computed: Whether the layer uses a value computed from this tensor (a standardized or spectrally normalized
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
