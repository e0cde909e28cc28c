"""Every name in a run is checked before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from rekindle.errors import SettingsError
from rekindle.lab.data.augment import augmentation
from rekindle.lab.data.catalog import check as check_data
from rekindle.lab.models.catalog import NETWORKS
from rekindle.lab.protocols.catalog import protocol
from rekindle.methods.kinds import kind_of
from rekindle.methods.registry import keys_of, methods
from rekindle.methods.spec import FRESH, UNTREATED, choose, name_of
from rekindle.metrics.registry import metric
from rekindle.training.optimizers import optimizer
from rekindle.training.schedules import Plateau, schedule


def check(fields: Mapping[str, Any]) -> None:
    """Raise a RekindleError if something that a run names does not exist; nothing is loaded or built.

    Args:
        fields: All fields of the run, as `Run.to_dict` gives them.
    """
    protocol(fields["protocol"])
    check_data(fields["data"])
    choose("networks", fields["model"], NETWORKS)
    methods_of(fields["methods"])
    augmentation(fields["augment"])
    _check_optimizer(fields["optimizer"])
    for name in fields["metrics"]:
        metric(name)
    _check_device(fields["device"])
    _check_parts(fields)
    validation, patience, rate = fields["validation"], fields["patience"], fields["schedule"]
    if (patience is not None or isinstance(schedule(rate), Plateau)) and not validation:
        raise SettingsError(
            expected="validation above 0 for patience and plateau, which look at it",
            got=f"validation={validation}, patience={patience}, schedule={rate!r}",
            fix="hold out a tenth: validation=0.1",
        )


def methods_of(spec: str) -> tuple[Any, ...]:
    """Return the settings of a run's methods; none for "none" and "fresh"."""
    found = () if spec in (UNTREATED, FRESH) else methods(spec)
    for one in found:
        if kind_of(one) == "optimizer":
            raise SettingsError(
                expected="methods that work beside an optimizer",
                got=f"{spec!r}",
                fix="give it as the optimizer of the run instead",
            )
    return tuple(found)


def _check_optimizer(spec: str) -> None:
    if name_of(spec) in keys_of("optimizer"):
        methods(spec)
    else:
        optimizer(spec, nn.ParameterList([torch.zeros(1)]), torch.zeros(1))


def _check_parts(fields: Mapping[str, Any]) -> None:
    if fields["batch_size"] % fields["accumulate"]:
        raise SettingsError(
            expected="accumulate that divides the batch into equal parts",
            got=f"batch_size={fields['batch_size']}, accumulate={fields['accumulate']}",
            fix="take a multiple of accumulate as batch_size",
        )
    if fields["compile"] and any(kind_of(one) == "recycler" for one in methods_of(fields["methods"])):
        raise SettingsError(
            expected="compile without recyclers: they read activations by hooks, which compiled networks may leave out",
            got=f"compile=True with methods={fields['methods']!r}",
            fix="leave compile out",
        )


def _check_device(name: str) -> None:
    try:
        torch.device(name)
    except RuntimeError as error:
        raise SettingsError(expected="a device: cpu, cuda, cuda:1, mps", got=repr(name), fix="take cpu") from error
