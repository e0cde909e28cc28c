"""Edits of a weight as its layer sees it: through weight_norm where that stands between."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rekindle.edits.edit import Edit
from rekindle.graph.regions import Whole
from rekindle.graph.weight import Weight


def matrix_edits(
    weight: Weight, op: Callable[..., Tensor], reason: str, solve: Callable[[Tensor], Tensor] | None = None
) -> tuple[Edit, ...]:
    """Return the edits that replace a weight's matrices by `op` of them.

    Args:
        weight: The weight.
        op: From matrices [batch, out, in] (and their solution, if `solve` is given) to new ones.
        reason: Why.
        solve: The costly half, which weights may share; see `Edit`.
    """
    if weight.gain is None:
        return (Edit(weight.tensor, op, reason, weight.view, solve=solve),)
    gain, dim = weight.gain

    def treated(direction: Tensor, scale: Tensor) -> Tensor:
        norm = torch.norm_except_dim(direction, 2, dim)
        unit = direction / torch.where(norm > 0, norm, torch.ones_like(norm))  # no direction: no weight
        old = unit * scale.reshape(norm.shape)
        part = weight.view.read(old)
        return weight.view.write(old, op(part) if solve is None else op(part, solve(part)))

    def new_direction(direction: Tensor, scale: Tensor) -> Tensor:
        new = treated(direction, scale)
        gone = torch.norm_except_dim(new, 2, dim) == 0  # the gain says zero; the direction must stay one
        return torch.where(gone, direction, new)

    def new_gain(scale: Tensor, direction: Tensor) -> Tensor:
        return torch.norm_except_dim(treated(direction, scale), 2, dim).reshape(scale.shape)

    return (
        Edit(weight.tensor, new_direction, reason, Whole(), reads=(gain,)),
        Edit(gain, new_gain, reason, Whole(), reads=(weight.tensor,)),
    )
