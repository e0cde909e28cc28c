"""New values of tensors, computed and checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rekindle.edits.edit import Edit
from rekindle.edits.record import Row, measure
from rekindle.errors import EditError
from rekindle.graph.plain import is_counter, why_not_in_place, why_not_plain
from rekindle.graph.regions import MatrixView
from rekindle.kernels.finite import finite
from rekindle.kernels.precision import widened

Tensors = Mapping[str, Tensor]
Views = Mapping[str, Sequence[MatrixView]]

SMALL = 1 << 18  # tensors up to this many values may share a batch, larger ones go alone
AT_ONCE = 1 << 20  # values in such a batch


@dataclass(frozen=True, eq=False)
class Change:
    """The new value of one tensor, computed and not yet written."""

    tensor: str
    old: Tensor
    new: Tensor
    stale: Tensor | None  # where optimizer moments are to be cleared
    rows: tuple[Row, ...]


def compute(
    edits: Sequence[Edit], tensors: Tensors, *, views: Views | None = None, measured: bool = True
) -> Iterator[Change]:
    """Compute the changes tensor by tensor, in the order of first mention, without writing anything.

    This one function serves a live model, a state dict and a checkpoint read lazily from disk.

    Args:
        edits: What to do.
        tensors: Where the old values are.
        views: The matrices that each tensor holds, for the record.
        measured: Whether rows for the record are made.

    Raises:
        EditError: A tensor is missing, not finite before, or a result has the wrong shape or is not finite.
    """
    by_tensor: dict[str, list[Edit]] = {}
    for edit in edits:
        by_tensor.setdefault(edit.tensor, []).append(edit)

    for names in _sets(by_tensor, tensors):
        for edit in (edit for name in names for edit in by_tensor[name]):
            _refuse_not_plain(edit, tensors)
        solved = _solve_together([by_tensor[name][0] for name in names], tensors)
        for name in names:
            yield _compute_one(
                name, by_tensor[name], tensors, solved, (views or {}).get(name, ()) if measured else None
            )


@torch.no_grad()
def _solve_together(firsts: Sequence[Edit], tensors: Tensors) -> dict[Edit, Tensor]:
    """Return the solutions of edits on different tensors that have the same solver and equal matrices, as one batch."""
    alike: dict[Any, list[tuple[Edit, Tensor]]] = {}
    for edit in firsts:
        if edit.solve is not None and _count(edit.tensor, tensors):
            part = edit.where.read(widened(_fetch(edit.tensor, tensors).detach()))
            alike.setdefault((edit.solve, part.shape[1:], part.dtype, part.device), []).append((edit, part))
    solved: dict[Edit, Tensor] = {}
    for (solve, *_), found in alike.items():
        if len(found) > 1:
            batch = solve(torch.cat([part for _, part in found]))
            solved |= zip((edit for edit, _ in found), batch.split([len(part) for _, part in found]), strict=True)
    return solved


def _sets(names: Iterable[str], tensors: Tensors) -> Iterator[list[str]]:
    """Split names, in order, into sets of small tensors and single large ones."""
    waiting: list[str] = []
    size = 0
    for name in names:
        count = _count(name, tensors)
        if waiting and size + count > AT_ONCE:
            yield waiting
            waiting, size = [], 0
        waiting.append(name)
        size += count if count <= SMALL else AT_ONCE
    if waiting:
        yield waiting


def _count(name: str, tensors: Tensors) -> int:
    return tensors[name].numel() if name in tensors else 0


@torch.no_grad()
def _compute_one(
    name: str,
    edits: Sequence[Edit],
    tensors: Tensors,
    solved: Mapping[Edit, Tensor],
    views: Sequence[MatrixView] | None,
) -> Change:
    old = _fetch(name, tensors)
    if not old.numel():  # nothing to compute with, and nothing to compute
        return Change(name, old, old.detach().clone(), None, ())
    work = widened(old.detach())
    stale = None
    rows = []
    for edit in edits:
        part = edit.where.read(work)
        others = [widened(_fetch(other, tensors).detach()) for other in edit.reads]
        new_part = edit.op(part, *others) if edit.solve is None else edit.finished(part, solved.get(edit), *others)
        _check(edit, part, new_part)
        if views is not None:
            stored = new_part.to(old.dtype).to(new_part.dtype)  # as it will be: half precision is rounded at the end
            rows.append(measure(edit, part, stored, views))
        if edit.clear_moments:
            mask = edit.reach(work, *others)
            stale = mask if stale is None else stale | mask
        work = edit.where.write(work, new_part.to(work.dtype))
    new = work.to(old.dtype)
    if new.is_floating_point() and not finite(widened(new)):
        raise EditError(
            expected=f"a new value of {name} that {old.dtype} can hold",
            got=f"values up to {float(work.abs().max()):.3g}",
            fix="keep this tensor in float32, or use gentler settings",
        )
    return Change(name, old, new, stale, tuple(rows))


def _refuse_not_plain(edit: Edit, tensors: Tensors) -> None:
    """Refuse tensors whose values cannot be computed with; nothing may come this far that a plan could have left out.

    Raises:
        EditError: The tensor, or one that is read for it, holds no plain floats; for what is only copied, has no values
            that can be written one by one.
    """
    for name in (edit.tensor, *edit.reads):
        tensor = tensors.get(name)
        if tensor is None or not tensor.numel() or is_counter(name, tensor):
            continue
        why = why_not_plain(tensor) if edit.computes else why_not_in_place(tensor)
        if why:
            raise EditError(
                expected=f"plain floats in {name} ({edit.reason})",
                got=why,
                fix="leave this tensor out; nothing was changed",
            )


def _fetch(name: str, tensors: Tensors) -> Tensor:
    if name not in tensors:
        raise EditError(
            expected=f"a tensor named {name}",
            got=f"{len(tensors)} tensors without it",
            fix="plan on the model that you edit: trace it again if it was rebuilt or renamed",
        )
    tensor = tensors[name]
    if tensor.is_meta:
        raise EditError(
            expected=f"values in {name}",
            got="a tensor on the meta device, which has none",
            fix="load the weights first; nothing was changed",
        )
    if tensor.is_floating_point() and not finite(widened(tensor)):
        bad = int((~torch.isfinite(tensor)).sum())
        raise EditError(
            expected=f"finite values in {name}",
            got=f"{bad} of {tensor.numel()} NaN or infinite",
            fix="go back to a checkpoint from before the divergence; nothing was changed",
        )
    return tensor


def _check(edit: Edit, old: Tensor, new: Tensor) -> None:
    if new.shape != old.shape:
        raise EditError(
            expected=f"a new part of shape {tuple(old.shape)} for {edit.tensor} ({edit.reason})",
            got=f"shape {tuple(new.shape)}",
            fix="this is a mistake in the method, or a reference of another architecture; nothing was changed",
        )
    if new.is_floating_point() and not finite(new):
        raise EditError(
            expected=f"finite new values for {edit.tensor} ({edit.reason})",
            got=f"{int((~torch.isfinite(new)).sum())} NaN or infinite",
            fix="use gentler settings or a more exact solver; nothing was changed",
        )
