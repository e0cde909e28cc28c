"""Margin: by how much the true class beats the next one."""

from __future__ import annotations

from rekindle.errors import PlanError
from rekindle.kernels.margins import margin as margin
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

SMALLEST = 400

METRIC = MetricCard(
    key="margin",
    title="Softmax margin",
    source="Layerwise reinitialization, section 4 and Figure 4",
    what="p(true class) - largest p of another class, of the softmax outputs; the mean of the smallest 400 (or of the "
    "smallest half, if there are fewer than 800 samples). Negative where the answer is wrong.",
    unit="difference of probabilities",
    direction="higher",
    range=(-1.0, 1.0),
    needs=("features",),
    known="Larger margins at the same weight size go with better generalization. On its own it says how well the data "
    "is fitted, not whether new data could be.",
)


def measure(inputs: MetricInputs) -> Reading:
    """Return the mean of the smallest margins; the curve of them is in the details.

    Raises:
        PlanError: There are no outputs with labels beside them.
    """
    features = inputs.features
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
