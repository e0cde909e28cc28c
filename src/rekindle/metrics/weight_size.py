"""Weight size: the norm of what the head is given, times the norm of the head."""

from __future__ import annotations

from torch import Tensor

from rekindle.errors import PlanError
from rekindle.metrics._matrices import effective
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="weight_size",
    title="Size of the weights, norms counted in",
    source="Layerwise reinitialization, section 4 and Appendix D",
    what="Mean L2 norm of the head's input over samples, times the Frobenius norm of the head's weight: stands for the "
    "product of all layers' norms where normalization layers make those meaningless.",
    unit="product of norms",
    direction="lower",
    range=(0.0, float("inf")),
    needs=("features",),
    known="Read it together with the margin: bounds on generalization divide one by the other. The paper takes 256 "
    "random samples and does not say how their norms are joined; we take the mean over at most 2048, so that the "
    "number of samples does not matter.",
)


def weight_size(inputs: Tensor, head: Tensor) -> float:
    """Return the mean norm of the inputs times the norm of the head.

    Args:
        inputs: What the head is given [samples, features].
        head: Its weight, in any shape.

    Example:
        >>> import torch
        >>> weight_size(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([[0.0, 2.0]]))
        6.0
    """
    return float(inputs.double().norm(dim=1).mean() * head.double().norm())


def measure(inputs: MetricInputs) -> Reading:
    """Return the size for each head, and the largest.

    Raises:
        PlanError: No head could be seen.
    """
    features = inputs.features
    assert features is not None
    parts = {}
    for path, head in features.heads.items():
        weight = next(iter(inputs.graph.weights_of(head.tensor)), None)
        if weight is not None and not weight.computed:
            parts[path] = weight_size(head.inputs, effective(inputs.tensors, weight).cpu())
    if not parts:
        raise PlanError(
            expected="a head whose input and weight can be seen",
            got="no module that applies it" if not features.heads else "none that is a plain weight",
            fix="let a module (nn.Linear, nn.Conv2d) be the head, or leave weight_size out",
        )
    return Reading(METRIC.key, max(parts.values()), parts, {"left_out": dict(inputs.graph.not_plain)})
