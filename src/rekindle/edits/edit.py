"""Edits: what a method wants changed, as values that can be printed, counted and tested before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rekindle.edits.surgery import Surgery
from rekindle.graph.regions import Where, Whole


@dataclass(frozen=True, eq=False)
class Edit:
    """One change to one tensor.

    Args:
        tensor: Canonical name of the parameter or buffer.
        op: Pure function from the old part (and the whole of each tensor in `reads`) to the new part of equal shape.
            It is given float32 where the tensor is float16 or bfloat16; rounding happens once, at the end.
        reason: Why, in a few words; the method's key if left out.
        where: Which elements, and in which shape `op` sees them.
        reads: Other tensors that `op` needs; it sees their old values.
        clear_moments: Whether the optimizer's memory of these elements is stale afterwards.
        touched: Where only some elements of the part are meant, and which ones depends on their values: function of
            what `op` is given to a boolean mask of the part. Elements outside keep their bits and their moments.
        solve: The costly half of the operation, if it can be shared: a function of matrices [batch, out, in], each by
            itself. Parts of several tensors with equal solver and shape go through it as one batch, and `op` is given
            its part and then the solution.
        computes: Whether new values are computed. What only takes over another tensor's as they are may be done to
            numbers of any type; see `graph.plain`.
    """

    tensor: str
    op: Callable[..., Tensor]
    reason: str = ""
    where: Where = field(default_factory=Whole)
    reads: tuple[str, ...] = ()
    clear_moments: bool = True
    touched: Callable[..., Tensor] | None = None
    solve: Callable[[Tensor], Tensor] | None = None
    computes: bool = True

    def finished(self, part: Tensor, solution: Tensor | None, *others: Tensor) -> Tensor:
        """Return the new part, with a solution that was found in a batch or now."""
        return self.op(part, self.solve(part) if solution is None else solution, *others)  # type: ignore[misc]

    def reach(self, tensor: Tensor, *others: Tensor) -> Tensor:
        """Return a boolean tensor of the tensor's shape, true at the elements that this edit is about.

        Args:
            tensor: The old value.
            *others: The old values of `reads`.
        """
        if self.touched is None:
            return self.where.mask(tensor)
        nothing = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
        return self.where.write(nothing, self.touched(self.where.read(tensor), *others))


@dataclass(frozen=True)
class Skip:
    """A tensor that a method looked at and left alone, with the reason."""

    tensor: str
    reason: str


@dataclass(frozen=True)
class Edits:
    """What planning gives: the edits, the skips, words for the user, and changes of structure."""

    edits: tuple[Edit, ...] = ()
    skips: tuple[Skip, ...] = ()
    notices: tuple[str, ...] = ()
    surgery: tuple[Surgery, ...] = ()

    def __add__(self, other: Edits) -> Edits:
        """Join two plans, first come first."""
        return Edits(
            self.edits + other.edits,
            self.skips + other.skips,
            self.notices + other.notices,
            self.surgery + other.surgery,
        )
