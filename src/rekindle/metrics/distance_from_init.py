"""Distance of every parameter from its initial value."""

from __future__ import annotations

import math

from torch import Tensor

from rekindle.kernels.isometry import frobenius_norm, squared_frobenius_error
from rekindle.metrics._matrices import as_float, checked_reference, effective
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading
from rekindle.metrics.sfe import over

METRIC = MetricCard(
    key="distance_from_init",
    title="Distance from initialization",
    source="Soft Weight Rescaling, D.2 (L2 Init); FIRE, D",
    what="|theta - theta0| of each parameter tensor: weights, biases, norms and embeddings; weight_norm is multiplied "
    "out. The model's is the distance of all together. In details: divided by |theta0| (relative), and the norm "
    "now over the initial one (norm_ratio).",
    unit="weight",
    direction="neither",
    range=(0.0, math.inf),
    needs=("weights", "reference"),
    known="Every trained network has moved. Staying near the initial weights keeps plasticity (L2 Init), but a given "
    "distance predicts little across networks, widths and optimizers.",
)


def distance_from_init(weight: Tensor, initial: Tensor) -> float:
    """Return |theta - theta0|.

    Example:
        >>> import torch
        >>> distance_from_init(torch.tensor([3.0, 5.0]), torch.tensor([0.0, 1.0]))
        5.0
    """
    return math.sqrt(float(squared_frobenius_error(initial, weight)))


def measure(inputs: MetricInputs) -> Reading:
    """Return the distance of each parameter, and of all together."""
    graph = inputs.graph
    names = [name for name in graph.parameters if name not in graph.not_plain]
    reference = checked_reference(inputs, set(names))
    normed = {weight.tensor: weight for weight in graph.weights if weight.gain is not None}
    parts: dict[str, float] = {}
    lengths: dict[str, tuple[float, float]] = {}
    for name in names:
        if name in graph.gains:
            continue  # goes with its direction
        pair = (inputs.tensors, reference)
        now, before = (effective(each, normed[name]) if name in normed else as_float(each[name]) for each in pair)
        parts[name] = distance_from_init(now, before)
        lengths[name] = frobenius_norm(now), frobenius_norm(before)
    details = {
        "relative": {name: over(parts[name], before) for name, (_, before) in lengths.items()},
        "norm_ratio": {name: over(now, before) for name, (now, before) in lengths.items()},
        "relative_summary": over(math.hypot(*parts.values()), math.hypot(*(before for _, before in lengths.values()))),
        "left_out": dict(graph.not_plain),
    }
    return Reading(METRIC.key, math.hypot(*parts.values()), parts, details)
