"""Norms of weights and factors of tensors, a few fused operations each, prepared once from a scaling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from rekindle.graph.regions import Where
from rekindle.graph.scaling.constraints import ScaleBlock
from rekindle.graph.scaling.solve import Part, Wish

Read = Callable[[Tensor], Tensor]


class Norms:
    """The norms of weights, or of the parts of tensors that are weights, in one call.

    Args:
        wishes: The weights.
        dtype: In which norms are computed, float32 or wider.
    """

    def __init__(self, wishes: Sequence[Wish], dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._reads = [reader(wish.where, wish.shape) for wish in wishes]
        self._whole = all(read is None for read in self._reads)

    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the norms [wishes], given the tensor of each wish."""
        parts = tensors
        if not self._whole:
            parts = [t if read is None else read(t) for t, read in zip(tensors, self._reads, strict=True)]
        return torch.stack(torch._foreach_norm(list(parts), 2, self.dtype))


class Factors:
    """The factors of all tensors from what is wanted: one matrix product, and one look-up for tensors with several.

    Args:
        parts: How each tensor is multiplied.
        columns: The wishes that can want anything; the others want to stay.
        like: Dtype and device of what is wanted.

    Attributes:
        names: The tensors that can change, in the order of the factors.
    """

    def __init__(self, parts: Mapping[str, Part], columns: Sequence[int], like: Tensor) -> None:
        rows: list[Tensor] = []
        picks: dict[str, Tensor] = {}
        single: list[str] = []
        moving = {name: part for name, part in parts.items() if part.powers[:, columns].any()}
        pieces = {name: _distinct(part, columns) for name, part in moving.items()}
        for name, (powers, index) in sorted(pieces.items(), key=lambda item: item[1][1] is not None):
            if index is None:
                single.append(name)
            else:
                picks[name] = index + sum(map(len, rows))
            rows.append(powers)
        self.names = (*single, *picks)
        self._single, self._shapes = len(single), [index.shape for index in picks.values()]
        self._counts = [index.numel() for index in picks.values()]
        self._picks = torch.cat([index.reshape(-1) for index in picks.values()]).to(like.device) if picks else None
        self._powers = torch.cat(rows).to(like) if rows else like.new_zeros(0, len(columns))  # [rows, wishes]

    def __call__(self, wanted: Tensor) -> Sequence[Tensor]:
        """Return the factor of each tensor, broadcastable to it, for the logarithms that are wanted."""
        every = torch.mv(self._powers, wanted).exp_()
        if self._picks is None:
            return every.unbind()
        several = every.index_select(0, self._picks).split(self._counts)
        shaped = [factor.view(shape) for factor, shape in zip(several, self._shapes, strict=True)]
        return [*every[: self._single].unbind(), *shaped]


def each_for_itself(wishes: Sequence[Wish]) -> dict[str, Part]:
    """Return parts in which every weight gets the factor that it wants, and everything else stays."""
    by_tensor: dict[str, list[int]] = defaultdict(list)
    for number, wish in enumerate(wishes):
        by_tensor[wish.tensor].append(number)
    own = torch.eye(len(wishes), dtype=torch.float64)
    parts = {}
    for name, numbers in by_tensor.items():
        masks = [wishes[n].where.mask(torch.empty(wishes[n].shape)) for n in numbers]
        rest = ~torch.stack(masks).any(0)
        blocks = [ScaleBlock(n, mask) for n, mask in zip(numbers, masks, strict=True)]
        powers = own[numbers]
        if rest.any():
            blocks, powers = [*blocks, ScaleBlock(-1, rest)], torch.cat([powers, torch.zeros_like(own[:1])])
        parts[name] = Part(tuple(blocks), powers)
    return parts


def reader(where: Where, shape: tuple[int, ...]) -> Read | None:
    """Return how a region is read for its norm, without a copy where it is a slice; None for the whole tensor.

    Example:
        >>> from rekindle.graph.regions import MatrixView
        >>> queries = reader(MatrixView((6, 2), (0,), (1,), rows=torch.arange(2)), (6, 2))
        >>> queries(torch.arange(12.0).reshape(6, 2)).tolist()
        [[0.0, 1.0], [2.0, 3.0]]
    """
    mask = _narrowed(where.mask(torch.empty(shape)))
    if bool(mask.all()):
        return None
    long = [dim for dim, size in enumerate(mask.shape) if size > 1]
    inside = mask.reshape(-1).nonzero().reshape(-1)
    first, count = (int(inside[0]), len(inside)) if len(inside) else (0, 0)
    if len(long) != 1 or int(inside[-1]) - first + 1 != count:
        return where.read
    return lambda tensor: tensor.narrow(long[0], first, count)


def _distinct(part: Part, columns: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """Return the different rows of powers, and for each element which one is its own; None if there is but one."""
    powers, row = torch.unique(part.powers[:, columns], dim=0, return_inverse=True)
    if len(powers) == 1:
        return powers, None
    index = torch.zeros((), dtype=torch.long)
    for block, number in zip(part.blocks, row.tolist(), strict=True):
        assert block.mask is not None
        index = index + block.mask.cpu() * number
    return powers, _narrowed(index)


def _narrowed(values: Tensor) -> Tensor:
    """Return the values with every dimension along which they are all the same cut to one."""
    for dim, size in enumerate(values.shape):
        first = values.narrow(dim, 0, min(size, 1))
        if size > 1 and bool((values == first).all()):
            values = first
    return values
