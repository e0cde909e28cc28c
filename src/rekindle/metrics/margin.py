"""Margin: by how much the true class beats the next one."""

from __future__ import annotations

import torch
from torch import Tensor

from rekindle.core.errors import PlanError
from rekindle.metrics.reading import Metric, Reading, Subject

SMALLEST = 400

METRIC = Metric(
    key="margin",
    title="Softmax margin",
    source="Layerwise reinitialisation, section 4 and Figure 4",
    what="p(true class) - largest p of another class, of the softmax outputs; the mean of the smallest 400 (or of the "
    "smallest half, if there are fewer than 800 samples). Negative where the answer is wrong.",
    unit="difference of probabilities",
    direction="higher",
    range=(-1.0, 1.0),
    needs=("features",),
    known="Larger margins at the same weight size go with better generalisation. On its own it says how well the data "
    "is fitted, not whether new data could be.",
)


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the margin of each sample.

    Args:
        logits: [samples, classes], two classes or more.
        labels: [samples], whole numbers.

    Example:
        >>> margin(torch.tensor([[0.0, 0.0], [3.0, 0.0]]).log_softmax(1), torch.tensor([0, 1])).round(decimals=3)
        tensor([ 0.0000, -0.9050], dtype=torch.float64)
    """
    p = logits.double().softmax(dim=1)
    true = p.gather(1, labels.long()[:, None])[:, 0]
    others = p.scatter(1, labels.long()[:, None], -torch.inf)
    return true - others.amax(dim=1)


def read(subject: Subject) -> Reading:
    """Return the mean of the smallest margins; the curve of them is in the details.

    Raises:
        PlanError: There are no outputs with labels beside them.
    """
    features = subject.features
    assert features is not None
    if features.margins is None or not features.answers:
        raise PlanError(
            expected="batches (inputs, integer targets) of a model whose outputs are (samples, classes, ...)",
            got=features.no_margins,
            fix="pass data= with the labels, or leave margin out",
        )
    smallest = features.margins[: max(1, min(SMALLEST, (features.answers + 1) // 2))]
    details = {"smallest": smallest.tolist(), "samples": features.answers, "wrong": features.wrong / features.answers}
    return Reading(METRIC.key, float(smallest.mean()), details=details)
