"""What the three ranks of features share: from spectra to a reading."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from rekindle.metrics.reading import MetricInputs, Reading


def read_rank(key: str, rank: Callable[[Tensor], float], inputs: MetricInputs) -> Reading:
    """Return the rank of each group's features as a share of the largest possible rank, and the mean share.

    Args:
        key: The metric.
        rank: From singular values, largest first, to a rank.
        inputs: What is looked at. Ranks themselves, the largest possible ones and the spectra are in the details.
    """
    features = inputs.features
    assert features is not None
    features.check_seen(key)
    ranks = {name: float(rank(group.spectrum)) for name, group in features.groups.items()}
    possible = {name: group.possible for name, group in features.groups.items()}
    parts = {name: found / possible[name] for name, found in ranks.items()}
    spectra = {name: group.spectrum.tolist() for name, group in features.groups.items()}
    details = {"rank": ranks, "possible": possible, "spectrum": spectra}
    return Reading(key, sum(parts.values()) / len(parts), parts, details)
