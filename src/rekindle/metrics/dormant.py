"""Dormant units: those that hardly take part."""

from __future__ import annotations

import torch
from torch import Tensor

from rekindle.kernels.per_feature import relative
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

THRESHOLD = 0.025

METRIC = MetricCard(
    key="dormant",
    title="Dormant units",
    source="Sokar et al. 2023, Definition 3.1; FIRE, Theorem 4, Corollary 2 and D",
    what="Share of units with a score of at most 0.025; the score is mean |activation| over the data, divided by its "
    "mean over the units of the group. Where a whole group is silent, all of it is dormant.",
    unit="share of units",
    direction="lower",
    range=(0.0, 1.0),
    needs=("features",),
    known="Rises in many networks that stop learning, in reinforcement learning most of all. Says nothing about "
    "networks without exact or near zeros (GELU, tanh), and a network can lose plasticity without it.",
)


def dormant(magnitude: Tensor, threshold: float = THRESHOLD) -> Tensor:
    """Return which units are dormant.

    Args:
        magnitude: Mean |activation| of each unit.
        threshold: Largest score of a dormant unit.

    Example:
        >>> dormant(torch.tensor([0.0, 0.01, 1.0, 1.0])).tolist()
        [True, True, False, False]
    """
    return relative(magnitude) <= threshold


def measure(inputs: MetricInputs) -> Reading:
    """Return the share for each group, and over all units; the scores are in the details."""
    features = inputs.features
    assert features is not None
    features.check_seen(METRIC.key)
    found = {name: dormant(group.magnitude) for name, group in features.groups.items()}
    parts = {name: float(units.double().mean()) for name, units in found.items()}
    every = torch.cat(list(found.values()))
    details = {
        "scores": {name: relative(group.magnitude).tolist() for name, group in features.groups.items()},
        "units": {name: units.nonzero()[:, 0].tolist() for name, units in found.items()},
    }
    return Reading(METRIC.key, float(every.double().mean()), parts, details)
