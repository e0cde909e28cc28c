"""The only writer of parameters, buffers and optimizer state.

Everything is computed and checked first; the first write happens when nothing can fail any more, so an error leaves
model and optimizer as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from rekindle.edits.edit import Edit
from rekindle.edits.record import Row, measure
from rekindle.edits.update import Clamp, Multiply, Update
from rekindle.errors import EditError
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
        if edit.solve is not None:
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
    work = widened(old.detach())
    stale = None
    rows = []
    for edit in edits:
        part = edit.where.read(work)
        others = [widened(_fetch(other, tensors).detach()) for other in edit.reads]
        new_part = edit.op(part, *others) if edit.solve is None else edit.finished(part, solved.get(edit), *others)
        _check(edit, part, new_part)
        if views is not None:
            rows.append(measure(edit, part, new_part, views))
        if edit.clear_moments:
            mask = edit.reach(work, *others)
            stale = mask if stale is None else stale | mask
        work = edit.where.write(work, new_part.to(work.dtype))
    new = work.to(old.dtype)
    if new.is_floating_point() and not finite(new):
        raise EditError(
            expected=f"a new value of {name} that {old.dtype} can hold",
            got=f"values up to {float(work.abs().max()):.3g}",
            fix="keep this tensor in float32, or use gentler settings",
        )
    return Change(name, old, new, stale, tuple(rows))


def _fetch(name: str, tensors: Tensors) -> Tensor:
    if name not in tensors:
        raise EditError(
            expected=f"a tensor named {name}",
            got=f"{len(tensors)} tensors without it",
            fix="plan on the model that you edit: trace it again if it was rebuilt or renamed",
        )
    tensor = tensors[name]
    if tensor.is_floating_point() and not finite(tensor):
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


@dataclass(frozen=True, eq=False)
class Written:
    """One tensor that was written, with what stood there before."""

    tensor: Tensor
    before: Tensor
    version: int


def write(
    changes: Sequence[Change], tensors: Tensors, optimizer: Optimizer | None, aliases: Mapping[str, Sequence[str]]
) -> list[Written]:
    """Write computed changes into live tensors in place, and clear the stale optimizer moments.

    Args:
        changes: From `compute`.
        tensors: The live tensors by name; identity, dtype, device and `requires_grad` stay.
        optimizer: Whose moments are cleared exactly where a change says so.
        aliases: Canonical name to further names under which a state dict may hold a copy of the same tensor.
    """
    log: list[Written] = []
    try:
        for change in changes:
            _write_one(change, tensors, optimizer, aliases, log)
    except BaseException:  # out of memory, an interrupt: a half-written model is worse than none
        undo(log, force=True)
        raise
    return log


@torch.no_grad()
def _write_one(
    change: Change,
    tensors: Tensors,
    optimizer: Optimizer | None,
    aliases: Mapping[str, Sequence[str]],
    log: list[Written] | None,
) -> None:
    target = tensors[change.tensor]
    _put(target, change.new, log)
    for other in aliases.get(change.tensor, ()):
        if other in tensors and tensors[other].data_ptr() != target.data_ptr():
            _put(tensors[other], change.new, log)
    if optimizer is not None and change.stale is not None:
        for moment in moments(optimizer, target):
            _put(moment, moment.masked_fill(change.stale, 0), log)


def write_one_by_one(
    edits: Sequence[Edit], tensors: Tensors, optimizer: Optimizer | None, aliases: Mapping[str, Sequence[str]]
) -> None:
    """Compute again and write tensor by tensor, keeping nothing: for edits that were computed and checked before.

    Tensors that read each other are computed before any of them is written; the rest never needs more than one at once.
    """
    together = {name for edit in edits if edit.reads for name in (edit.tensor, *edit.reads)}
    linked = [edit for edit in edits if edit.tensor in together]
    write(list(compute(linked, tensors, measured=False)), tensors, optimizer, aliases)
    for change in compute([edit for edit in edits if edit.tensor not in together], tensors, measured=False):
        _write_one(change, tensors, optimizer, aliases, None)
        del change  # before the next one is computed


@torch.no_grad()
def carry_out(update: Update, optimizers: Sequence[Optimizer] = ()) -> None:
    """Write what a per-step method wants, in place and fused; nothing is kept for undo."""
    tensors = list(update.tensors)
    if isinstance(update, Multiply):
        torch._foreach_mul_(tensors, list(update.factors))
    elif isinstance(update, Clamp):
        torch._foreach_clamp_max_(tensors, list(update.bounds))
        torch._foreach_clamp_min_(tensors, [-bound for bound in update.bounds])
    else:
        torch._foreach_copy_(tensors, list(update.values))
        if update.clear_moments:
            stale = [moment for tensor in tensors for each in optimizers for moment in moments(each, tensor)]
            if stale:
                torch._foreach_zero_(stale)


@torch.no_grad()
def spread(tensors: Sequence[Tensor], optimizers: Sequence[Optimizer]) -> None:
    """Give every process the first one's values: tensors, and the optimizers' moments of them."""
    for tensor in tensors:
        dist.broadcast(tensor, 0)
        for moment in [moment for each in optimizers for moment in moments(each, tensor)]:
            dist.broadcast(moment, 0)


def _put(target: Tensor, new: Tensor, log: list[Written] | None) -> None:
    if log is not None:
        log.append(Written(target, target.detach().clone(), target._version + 1))
    target.copy_(new)


def moments(optimizer: Optimizer, parameter: Tensor) -> list[Tensor]:
    """Return the optimizer's tensors that have one entry per element of the parameter.

    SGD's momentum, Adam's two averages, Muon's buffer and whatever else has the parameter's shape; step counters
    are left alone, also those of a scalar parameter.
    """
    state = optimizer.state.get(parameter, {})
    return [
        value
        for key, value in state.items()
        if isinstance(value, Tensor) and value.shape == parameter.shape and key != "step"
    ]


def not_cleared(optimizer: Optimizer | None, changes: Sequence[Change], tensors: Tensors) -> tuple[str, ...]:
    """Return a word about optimizer state of edited parameters that has another shape and could not be cleared."""
    odd: dict[str, list[str]] = {}
    for change in changes if optimizer is not None else ():
        parameter = tensors[change.tensor]
        for key, value in optimizer.state.get(parameter, {}).items():  # type: ignore[union-attr]
            if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                odd.setdefault(key, []).append(change.tensor)
    return tuple(
        f"optimizer state {key!r} of {len(names)} tensors (first: {names[0]}) has another shape than its parameter and "
        "was kept; it still remembers the old weights"
        for key, names in odd.items()
    )


def undo(log: Sequence[Written], *, force: bool = False) -> None:
    """Put back what stood before, last write first.

    Raises:
        EditError: A tensor was written since (training went on) and `force` is not set; nothing is changed then.
    """
    touched = sum(entry.tensor._version != entry.version for entry in log)
    if touched and not force:
        raise EditError(
            expected="tensors as the change left them",
            got=f"{touched} of {len(log)} written since",
            fix="undo before training goes on, or pass force=True to put the old values back all the same",
        )
    with torch.no_grad():
        for entry in reversed(log):
            entry.tensor.copy_(entry.before)
