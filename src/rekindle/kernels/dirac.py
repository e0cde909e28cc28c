"""The Dirac weight: what passes as many inputs as possible on as they are."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def add_dirac(matrices: Tensor, strength: float, groups: int = 1, kernel: tuple[int, ...] = ()) -> Tensor:
    """Return matrices with `strength` added to the diagonal at the center of the kernel, in each group.

    Without a kernel this is the identity of a linear layer. With one it is what `torch.nn.init.dirac_` makes of a
    convolution: output d reads input d of its group at position size // 2, as far as there are both.

    Args:
        matrices: [groups * kernel positions, out, in], groups slowest.
        strength: What is added.
        groups: Number of groups.
        kernel: ScaleConstraints of the kernel.

    Example:
        >>> add_dirac(torch.zeros(3, 1, 2), 0.5, kernel=(3,)).flatten(1)
        tensor([[0.0000, 0.0000],
                [0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    diagonal = torch.arange(min(matrices.shape[1:]), device=matrices.device)
    centers = _centres(groups, kernel).to(matrices.device)
    new = matrices.clone()
    new[centers[:, None], diagonal, diagonal] += strength
    return new


def _centres(groups: int, kernel: tuple[int, ...]) -> Tensor:
    """Return for each group the number of the matrix that belongs to the center of its kernel."""
    center = 0
    for size in kernel:
        center = center * size + size // 2
    return torch.arange(groups) * math.prod(kernel) + center
