"""Stability of frozen weights: whether gradient descent with weight decay brings them back."""

from __future__ import annotations

import math

from rekindle.metrics.frozen import measure as measure_frozen
from rekindle.metrics.frozen import unit_counts
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="stability",
    title="Stability of frozen weights",
    source="Frozen weights, 6.1 (double), 4.1 as quoted there (triple)",
    what="A product of weights near zero in f = A theta_i theta_j + B grows or decays under gradient descent on the "
    "squared error with weight decay lambda and learning rate eta by the eigenvalues eta (-lambda +- |B - y| "
    "|A|) for two factors, and -eta lambda for three. Without data B - y and A are not known; three factors need "
    "neither. So the reading is the fraction of a group's units that are triple frozen, and stay so whatever the "
    "data; in details: conditional, the fraction that is double frozen and returns only where |B - y| |A| "
    "exceeds lambda.",
    unit="fraction of units",
    direction="lower",
    range=(0.0, 1.0),
    needs=("weights", "units"),
    known="The eigenvalues hold for one pair of scalar weights near zero (we check them against simulated dynamics). "
    "With lambda = 0 triple frozen weights do not decay, but do not grow either: the eigenvalue is zero.",
)


def stability(error: float, gain: float, rate: float, decay: float) -> tuple[float, float]:
    """Return the two eigenvalues of a pair of weights at zero, smaller first; the larger one above zero: it returns.

    Args:
        error: B - y, how far the rest of the network is from the target.
        gain: A, what multiplies the product of the two weights.
        rate: Learning rate eta.
        decay: Weight decay lambda.

    Example:
        >>> stability(error=-0.5, gain=2.0, rate=0.1, decay=0.25)
        (-0.125, 0.07500000000000001)
    """
    push = abs(error) * abs(gain)
    return rate * (-decay - push), rate * (-decay + push)


def triple_stability(rate: float, decay: float) -> float:
    """Return the eigenvalue of three weights at zero, -eta lambda: the error does not enter at first order."""
    return -rate * decay


def measure(inputs: MetricInputs) -> Reading:
    """Return the fraction of each group's units that is triple frozen, and of all units."""
    counts = unit_counts(measure_frozen(inputs))
    units = max(sum(map(sum, counts.values())), 1)
    details = {
        "conditional": {name: of[1] / max(sum(of), 1) for name, of in counts.items()},
        "conditional_summary": math.fsum(of[1] for of in counts.values()) / units,
        "returns_if": "|B - y| |A| > weight decay",
    }
    parts = {name: of[2] / max(sum(of), 1) for name, of in counts.items()}
    return Reading(METRIC.key, math.fsum(of[2] for of in counts.values()) / units, parts, details)
