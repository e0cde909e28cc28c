"""Zero activations: how often units are exactly silent."""

from __future__ import annotations

import torch
from torch import Tensor

from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="zero_activation",
    title="Zero activations",
    source="Dohare et al. 2024, 'Loss of plasticity in deep continual learning', dead units; Lyle et al. 2024",
    what="Share of activations that are exactly zero, over units and samples. A unit that is always zero is dead: no "
    "gradient reaches what writes it.",
    unit="share of activations",
    direction="lower",
    range=(0.0, 1.0),
    needs=("features",),
    known="About one half is normal behind a ReLU. Values near one, and dead units, go with a loss of plasticity; "
    "networks without a ReLU read zero, sick or not.",
)


def zero_activation(activations: Tensor) -> Tensor:
    """Return for each unit the share of samples at which it is exactly zero.

    Args:
        activations: [samples, units].

    Example:
        >>> zero_activation(torch.tensor([[0.0, 1.0], [0.0, 0.0]])).tolist()
        [1.0, 0.5]
    """
    return (activations == 0).double().mean(dim=0)


def measure(inputs: MetricInputs) -> Reading:
    """Return the share for each group, and the mean over all units; dead units are in the details."""
    features = inputs.features
    assert features is not None
    features.check_seen(METRIC.key)
    shares = {name: group.zeros for name, group in features.groups.items()}
    details = {
        "shares": {name: share.tolist() for name, share in shares.items()},
        "dead": {name: (share == 1).nonzero()[:, 0].tolist() for name, share in shares.items()},
    }
    summary = float(torch.cat(list(shares.values())).mean())
    return Reading(METRIC.key, summary, {name: float(share.mean()) for name, share in shares.items()}, details)
