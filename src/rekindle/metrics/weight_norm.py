"""Norm of the weights."""

from __future__ import annotations

import math

from torch import Tensor

from rekindle.kernels.isometry import frobenius_norm
from rekindle.metrics._matrices import elements, left_out, matrices, weights_of
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="weight_norm",
    title="Weight norm",
    source="Soft Weight Rescaling, 3.3; FIRE, 2",
    what="|W|_F of each weight, embeddings included, with weight_norm multiplied out. The model's is the norm of all "
    "of them together, sqrt(sum |W|^2). In details the root mean square of a weight's elements (rms), which does "
    "not depend on its size.",
    unit="weight",
    direction="neither",
    range=(0.0, math.inf),
    needs=("weights",),
    known="Growing norms go with lost plasticity in many studies: updates become small relative to the weights, and "
    "softmax saturates. There is no threshold; before a normalization layer the norm only sets the effective "
    "learning rate. Compare with the initial norm.",
)


def weight_norm(weight: Tensor) -> float:
    """Return |W|_F, summed in float64.

    Example:
        >>> import torch
        >>> weight_norm(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        5.0
    """
    return frobenius_norm(weight)


def measure(inputs: MetricInputs) -> Reading:
    """Return the norm of each weight, and of all together."""
    weights = weights_of(inputs.graph, embeddings=True)
    parts = {weight.name: weight_norm(matrices(inputs.tensors, weight)) for weight in weights}
    details = {
        "rms": {weight.name: parts[weight.name] / math.sqrt(max(elements(weight), 1)) for weight in weights},
        "left_out": left_out(inputs.graph, embeddings=True),
    }
    return Reading(METRIC.key, math.hypot(*parts.values()), parts, details)
