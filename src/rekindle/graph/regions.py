"""Which elements of a tensor an edit speaks of, and in which shape it sees them.

All three answer the same questions: `read` gives the part, `write` gives a new tensor with the part replaced, `mask`
marks the elements. Nothing is changed in place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Where(Protocol):
    """A region of a tensor."""

    def read(self, tensor: Tensor) -> Tensor:
        """Return the part."""

    def write(self, tensor: Tensor, part: Tensor) -> Tensor:
        """Return a copy of the tensor with the part replaced."""

    def mask(self, tensor: Tensor) -> Tensor:
        """Return a boolean tensor of the tensor's shape, true in the region."""


@dataclass(frozen=True)
class Whole:
    """The whole tensor in its own shape."""

    def read(self, tensor: Tensor) -> Tensor:
        """Return the tensor."""
        return tensor

    def write(self, tensor: Tensor, part: Tensor) -> Tensor:
        """Return the part."""
        return part

    def mask(self, tensor: Tensor) -> Tensor:
        """Return all true."""
        return torch.ones_like(tensor, dtype=torch.bool)


@dataclass(frozen=True, eq=False)
class UnitIndex:
    """The elements that belong to units: along the joint dimensions `dims` of the tensor seen as `view`, the `index`.

    A flatten after a convolution is a repeat (several indices a unit); a grouped convolution's input side lies in two
    dimensions of the view (groups, out, in, kernel...).

    Args:
        view: Shape in which the tensor is looked at.
        dims: Dimensions of the view that count the units, jointly, first one slowest.
        index: Long tensor [units, repeat] of flat positions along `dims`.
    """

    view: tuple[int, ...]
    dims: tuple[int, ...]
    index: Tensor

    def read(self, tensor: Tensor) -> Tensor:
        """Return [units, repeat, rest]."""
        rows = self._rows(tensor)
        return rows[self.index.to(tensor.device)]

    def write(self, tensor: Tensor, part: Tensor) -> Tensor:
        """Return a copy of the tensor with the units' elements replaced."""
        rows = self._rows(tensor).clone()
        rows[self.index.reshape(-1).to(tensor.device)] = part.reshape(-1, rows.shape[1])
        return self._back(rows, tensor.shape)

    def mask(self, tensor: Tensor) -> Tensor:
        """Return a boolean tensor of the tensor's shape, true at the units' elements."""
        rows = torch.zeros_like(self._rows(tensor), dtype=torch.bool)
        rows[self.index.reshape(-1).to(tensor.device)] = True
        return self._back(rows, tensor.shape)

    def at(self, units: Tensor) -> UnitIndex:
        """Return the same region for some of the units only."""
        return UnitIndex(self.view, self.dims, self.index[units])

    def _order(self) -> tuple[int, ...]:
        return self.dims + tuple(d for d in range(len(self.view)) if d not in self.dims)

    def _rows(self, tensor: Tensor) -> Tensor:
        lead = math.prod(self.view[d] for d in self.dims)
        return tensor.reshape(self.view).permute(self._order()).reshape(lead, -1)

    def _back(self, rows: Tensor, shape: torch.Size) -> Tensor:
        order = self._order()
        return _unpermute(rows.reshape([self.view[d] for d in order]), order).reshape(shape)


@dataclass(frozen=True, eq=False)
class MatrixView:
    """A weight as a batch of matrices [batch, out, in], whatever the layer is.

    Linear, convolution (kernel positions are the batch), grouped convolution (groups are batch too), transposed
    convolution and GPT-2's `Conv1D` differ only in which dimension is what; a fused projection in which rows.

    Example:
        >>> conv = MatrixView((4, 3, 2, 2), out=(0,), in_=(1,), batch=(2, 3))
        >>> conv.read(torch.zeros(4, 3, 2, 2)).shape
        torch.Size([4, 4, 3])
    """

    view: tuple[int, ...]
    out: tuple[int, ...]
    in_: tuple[int, ...]
    batch: tuple[int, ...] = ()
    rows: Tensor | None = None
    columns: Tensor | None = None

    def read(self, tensor: Tensor) -> Tensor:
        """Return [batch, out, in]."""
        matrices = self._all(tensor)
        if self.rows is not None:
            matrices = matrices[:, self.rows.to(tensor.device)]
        if self.columns is not None:
            matrices = matrices[:, :, self.columns.to(tensor.device)]
        return matrices

    def write(self, tensor: Tensor, part: Tensor) -> Tensor:
        """Return a copy of the tensor with these matrices replaced."""
        if self.rows is None and self.columns is None:
            return self._back(part, tensor.shape)
        matrices = self._all(tensor).clone()
        matrices[
            :, self._index(self.rows, matrices.shape[1])[:, None], self._index(self.columns, matrices.shape[2])
        ] = part
        return self._back(matrices, tensor.shape)

    def mask(self, tensor: Tensor) -> Tensor:
        """Return a boolean tensor of the tensor's shape, true in these matrices."""
        if self.rows is None and self.columns is None:
            return torch.ones(tensor.shape, dtype=torch.bool, device=tensor.device)
        inside = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
        return self.write(inside, torch.ones_like(self.read(inside)))

    def _index(self, chosen: Tensor | None, size: int) -> Tensor:
        return torch.arange(size) if chosen is None else chosen

    def _order(self) -> tuple[int, ...]:
        return self.batch + self.out + self.in_

    def _sizes(self) -> tuple[int, int, int]:
        batch, out, in_ = (math.prod(self.view[d] for d in dims) for dims in (self.batch, self.out, self.in_))
        return batch, out, in_

    def _all(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(self.view).permute(self._order()).reshape(self._sizes())

    def _back(self, matrices: Tensor, shape: torch.Size) -> Tensor:
        order = self._order()
        return _unpermute(matrices.reshape([self.view[d] for d in order]), order).reshape(shape)


def _unpermute(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    return tensor.permute([order.index(d) for d in range(len(order))])
