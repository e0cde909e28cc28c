"""Every name in a run is checked before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rekindle.bench.optimizers import optimizer
from rekindle.core.errors import SettingsError
from rekindle.core.registry import methods
from rekindle.core.spec import choose
from rekindle.data.augment import augmentation
from rekindle.data.catalogue import check as check_data
from rekindle.metrics.registry import metric
from rekindle.models.catalogue import NETWORKS
from rekindle.protocols.catalogue import protocol
from rekindle.protocols.schedule import Plateau, schedule

if TYPE_CHECKING:
    from rekindle.bench.spec import Run

NONE, FRESH = "none", "fresh"


def check(run: Run) -> None:
    """Raise a RekindleError if something that the run names does not exist; nothing is loaded or built."""
    protocol(run.protocol)
    check_data(run.data)
    choose("networks", run.model, NETWORKS)
    methods_of(run)
    augmentation(run.augment)
    _check_optimizer(run.optimizer)
    for name in run.metrics:
        metric(name)
    _check_device(run.device)
    if (run.patience is not None or isinstance(schedule(run.schedule), Plateau)) and not run.validation:
        raise SettingsError(
            expected="validation above 0 for patience and plateau, which look at it",
            got=f"validation={run.validation}, patience={run.patience}, schedule={run.schedule!r}",
            fix="hold out a tenth: validation=0.1",
        )


def methods_of(run: Run) -> tuple[Any, ...]:
    """Return the settings of the run's methods; none for "none" and "fresh"."""
    found = () if run.methods in (NONE, FRESH) else methods(run.methods)
    for one in found:
        if getattr(getattr(one, "card", None), "kind", None) == "optimizer":
            raise SettingsError(
                expected="methods that work beside an optimizer",
                got=f"{run.methods!r}",
                fix="give it as the optimizer of the run instead",
            )
    return tuple(found)


def _check_optimizer(spec: str) -> None:
    name = spec.partition(":")[0].strip()
    if name == "muon":
        methods(spec)
    else:
        optimizer(spec, nn.ParameterList([torch.zeros(1)]), torch.zeros(1))


def _check_device(name: str) -> None:
    try:
        torch.device(name)
    except RuntimeError as error:
        raise SettingsError(expected="a device: cpu, cuda, cuda:1, mps", got=repr(name), fix="take cpu") from error
