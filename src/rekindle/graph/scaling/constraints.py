"""How the sizes of tensors hang together, if the function is only to be scaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, eq=False)
class ScaleBlock:
    """Elements of a tensor that are only ever multiplied together.

    Args:
        variable: Number of the logarithm of their factor.
        mask: Which elements, broadcastable to the tensor; None for all of it.
    """

    variable: int
    mask: Tensor | None = None


@dataclass(frozen=True, eq=False)
class ScaleConstraints:
    """How the sizes of tensors hang together, if the function is only to be scaled by one constant.

    Args:
        blocks: For each parameter and running statistic that the forward pass uses, its blocks.
        equations: Sums of variables (number to coefficient) that are zero.
        output: The sum of variables that is the logarithm of the model's constant.
    """

    blocks: Mapping[str, tuple[ScaleBlock, ...]] = field(default_factory=dict)
    equations: tuple[Mapping[int, float], ...] = ()
    output: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Homogeneity:
    """What a second walk through the computation tells about scale.

    Args:
        constraints: How the sizes of tensors hang together.
        non_homogeneous: For each group, by name, where its units pass something that is not positively homogeneous of
            degree one ("module: operation").
    """

    constraints: ScaleConstraints = field(default_factory=ScaleConstraints)
    non_homogeneous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
