"""Squared Frobenius error: how far the weights have moved from the reference."""

from __future__ import annotations

import math

from torch import Tensor

from rekindle.kernels.isometry import frobenius_norm, squared_frobenius_error
from rekindle.metrics._matrices import left_out, matrix_pairs, weights_of
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="sfe",
    title="Squared Frobenius error",
    source="FIRE, 3.1, eq. 1 and Theorem 1",
    what="|W - W'|_F^2 between the reference W and the weight W' now, for each weight matrix; the model's is the sum. "
    "In details also divided by |W|_F^2 of the reference. Biases, norms and embeddings are not counted.",
    unit="squared weight",
    direction="neither",
    range=(0.0, math.inf),
    needs=("weights", "reference"),
    known="It bounds how much the normalized feature covariance can have changed (Theorem 1), with a large constant. "
    "It measures what was learned as much as what was lost; alone it does not predict plasticity.",
)


def sfe(reference: Tensor, weight: Tensor, *, relative: bool = False) -> float:
    """Return |W - W'|_F^2 of tensors of one shape.

    Args:
        reference: W.
        weight: W'.
        relative: Divide by |W|_F^2; infinite where W is zero and W' is not.

    Example:
        >>> import torch
        >>> sfe(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 2.0])), sfe(torch.ones(4), torch.zeros(4), relative=True)
        (4.0, 1.0)
    """
    error = float(squared_frobenius_error(reference, weight))
    return over(error, frobenius_norm(reference) ** 2) if relative else error


def over(part: float, whole: float) -> float:
    """Return part / whole; nothing over nothing is zero."""
    return part / whole if whole else (0.0 if part == 0 else math.inf)


def measure(inputs: MetricInputs) -> Reading:
    """Return |W - W'|^2 of each weight, and their sum."""
    parts: dict[str, float] = {}
    squares: dict[str, float] = {}
    for weight, now, before in matrix_pairs(inputs, weights_of(inputs.graph)):
        parts[weight.name] = sfe(before, now)
        squares[weight.name] = frobenius_norm(before) ** 2
    total = math.fsum(parts.values())
    details = {
        "relative": {name: over(parts[name], squares[name]) for name in parts},
        "relative_summary": over(total, math.fsum(squares.values())),
        "left_out": left_out(inputs.graph),
    }
    return Reading(METRIC.key, total, parts, details)
