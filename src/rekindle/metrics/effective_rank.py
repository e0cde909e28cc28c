"""Effective rank: the entropy of the singular values."""

from __future__ import annotations

from torch import Tensor

from rekindle.metrics._rank import read_rank
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="effective_rank",
    title="Effective rank",
    source="Roy and Vetterli 2007, Definition 1",
    what="exp of the entropy of the features' singular values divided by their sum; given as a share of the largest "
    "possible rank, min(units, samples). Features are not centered.",
    unit="share of the possible rank",
    direction="higher",
    range=(0.0, 1.0),
    needs=("features",),
    known="Smoother than srank and with the same limits: a low rank can be what the task asks for. Compare with a "
    "fresh network.",
)


def effective_rank(singular: Tensor) -> float:
    """Return exp(-sum p log p) with p the singular values over their sum; 0 where all are zero.

    Args:
        singular: Singular values, in any order.

    Example:
        >>> import torch
        >>> round(effective_rank(torch.ones(4)), 6), round(effective_rank(torch.tensor([1.0, 0.0])), 6)
        (4.0, 1.0)
    """
    total = singular.double().sum()
    if not bool(total > 0):
        return 0.0
    p = singular.double() / total
    return float((-(p[p > 0] * p[p > 0].log()).sum()).exp())


def measure(inputs: MetricInputs) -> Reading:
    """Return the share for each group, and the mean."""
    return read_rank(METRIC.key, effective_rank, inputs)
