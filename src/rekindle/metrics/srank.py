"""srank: how many singular values make up 99% of their sum."""

from __future__ import annotations

from torch import Tensor

from rekindle.metrics._rank import read_rank
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

DELTA = 0.01

METRIC = MetricCard(
    key="srank",
    title="Feature rank (srank)",
    source="Kumar et al. 2021, section 3; FIRE, Theorem 3",
    what="Smallest k such that the k largest singular values of the features (samples x units, not centered) sum to "
    "99% of all; given as a share of the largest possible rank, min(units, samples).",
    unit="share of the possible rank",
    direction="higher",
    range=(0.0, 1.0),
    needs=("features",),
    known="Falls in many networks that lose plasticity, but a low rank can also be what the task asks for: a "
    "classifier's last features tend to as many directions as there are classes. Compare with a fresh network.",
)


def srank(singular: Tensor, delta: float = DELTA) -> int:
    """Return the smallest k whose largest singular values sum to 1 - delta of all; 0 where all are zero.

    Args:
        singular: Singular values, largest first.
        delta: The share that may be missing.

    Example:
        >>> import torch
        >>> srank(torch.tensor([98.0, 1.5, 0.5])), srank(torch.ones(10))
        (2, 10)
    """
    total = singular.sum()
    if not bool(total > 0):
        return 0
    # A hair of slack, so that rounding of the sum does not ask for one more.
    short = singular.cumsum(0) < (1 - delta) * total * (1 - 1e-12)
    return int(short.sum()) + 1


def measure(inputs: MetricInputs) -> Reading:
    """Return the share for each group, and the mean."""
    return read_rank(METRIC.key, srank, inputs)
