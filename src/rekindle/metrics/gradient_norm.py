"""Gradient norm: how strongly the data pulls at the parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor

from rekindle.errors import PlanError
from rekindle.metrics._loss import MeanLoss
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="gradient_norm",
    title="Gradient norm",
    source="Lyle et al. 2023, section 4; FIRE, Theorem 2 (gamma)",
    what="L2 norm of the gradient of the mean loss over the data, for each parameter that is trained, and of all "
    "together. In evaluation mode: BatchNorm by its running statistics, dropout off.",
    unit="loss per unit of weight",
    direction="neither",
    range=(0.0, float("inf")),
    needs=("loss",),
    known="Layers that get no gradient at all on new data cannot learn it. Otherwise the size tells little: small "
    "where the data is fitted, and optimizers such as Adam take it out.",
)


def gradient_norm(gradients: Iterable[Tensor]) -> float:
    """Return the L2 norm of all gradients together.

    Example:
        >>> import torch
        >>> gradient_norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
        5.0
    """
    return math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))


def measure(inputs: MetricInputs) -> Reading:
    """Return the norm for each parameter, and of all together; relative to the weights in the details.

    Raises:
        PlanError: No parameter is trained.
    """
    loss = MeanLoss(inputs)
    parameters = loss.parameters(trained_only=True)
    if not parameters:
        raise PlanError(
            expected="parameters of plain floats that take gradients",
            got="none: all are frozen, or of other numbers",
            fix="set requires_grad",
        )
    with loss.open(METRIC.key):
        gradients = loss.gradient(parameters)
    parts = {name: gradient_norm([gradient]) for name, gradient in gradients.items()}
    sizes = {name: gradient_norm([parameter]) for name, parameter in parameters.items()}
    relative = {name: parts[name] / size for name, size in sizes.items() if size > 0}
    details = {"relative": relative, "left_out": dict(inputs.graph.not_plain)}
    return Reading(METRIC.key, gradient_norm(gradients.values()), parts, details)
