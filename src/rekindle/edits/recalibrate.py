"""Bring running statistics back in step with the weights after an edit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.edits.record import ChangeRecord
from rekindle.edits.transaction import prepare, undo
from rekindle.errors import NoEffectWarning, PlanError
from rekindle.graph.unwrap import bare
from rekindle.observe import Data, running_statistics


def recalibrate_(model: nn.Module, data: Data, *, batches: int | None = None) -> ChangeRecord:
    """Set every BatchNorm layer's running mean and variance to what it sees on the data.

    An average over all batches, each counting the same, takes the place of the old statistics; momentum has no part in
    it. The model runs in training mode without gradients, and nothing but the statistics changes.

    Args:
        model: The model; every kind of BatchNorm, and InstanceNorm that tracks statistics.
        data: Batches: tensors, (inputs, targets) of which the inputs are used, or dicts of the model's arguments.
        batches: Use so many batches at the most; all by default.

    Returns:
        What was changed; it can undo it.

    Raises:
        RekindleError: Data or model do not fit. The model is as it was.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
        >>> _ = nn.init.constant_(net[0].weight, 2.0)
        >>> record = recalibrate_(net, [torch.tensor([[1.0], [3.0]])])
        >>> float(net[1].running_mean), float(net[1].running_var)
        (4.0, 8.0)
    """
    _check(model, batches)
    model = bare(model)
    found = running_statistics(model, data, batches=batches)
    if not found.values and not found.missing:
        warnings.warn("the model has no running statistics: nothing to recalibrate", NoEffectWarning, stacklevel=2)
    edits = [Edit(name, _to(new), "recalibrate", clear_moments=False) for name, new in found.values.items()]
    transaction = prepare(Edits(tuple(edits)), model)
    try:
        transaction.commit()
        return ChangeRecord(
            method=f"recalibrate_ over {found.batches} batches",
            rows=transaction.rows,
            skips=tuple(Skip(path, "no batch reaches it") for path in found.missing),
            _undo=lambda force: undo([transaction], force=force),
        )
    except BaseException:
        transaction.roll_back()
        raise


def _to(new: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda old: new.to(old)


def _check(model: Any, batches: Any) -> None:
    if not isinstance(model, nn.Module):
        raise PlanError(
            expected="a model that can be run",
            got=type(model).__name__,
            fix="load the state dict into the model, and recalibrate that",
        )
    if batches is not None and (not isinstance(batches, int) or batches < 1):
        raise PlanError(
            expected="batches: None, or a whole number of at least 1",
            got=repr(batches),
            fix="leave it out to go through all the data",
        )
