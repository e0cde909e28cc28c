"""Stable rank: the whole energy of the features over that of their strongest direction."""

from __future__ import annotations

from torch import Tensor

from rekindle.metrics._rank import read_rank
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="stable_rank",
    title="Stable rank",
    source="Rudelson and Vershynin 2007; as a measure of features in Dohare et al. 2024",
    what="Sum of the squared singular values of the features over the largest one squared, |A|_F^2 / |A|_2^2; given as "
    "a share of the largest possible rank, min(units, samples). Features are not centered.",
    unit="share of the possible rank",
    direction="higher",
    range=(0.0, 1.0),
    needs=("features",),
    known="Behind a ReLU the mean activation is the strongest direction, so that small values are normal; a fall "
    "against a fresh network tells more than the value.",
)


def stable_rank(singular: Tensor) -> float:
    """Return the sum of squares over the largest square; 0 where all are zero.

    Args:
        singular: Singular values, in any order.

    Example:
        >>> import torch
        >>> stable_rank(torch.tensor([2.0, 2.0, 1.0]))
        2.25
    """
    squares = singular.double().square()
    largest = squares.max()
    return float(squares.sum() / largest) if bool(largest > 0) else 0.0


def measure(inputs: MetricInputs) -> Reading:
    """Return the share for each group, and the mean."""
    return read_rank(METRIC.key, stable_rank, inputs)
