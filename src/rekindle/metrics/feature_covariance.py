"""Feature covariance: how differently two networks see the same data."""

from __future__ import annotations

from torch import Tensor

from rekindle.errors import PlanError
from rekindle.graph.modules import tensors_of
from rekindle.metrics.features import Features, gather_features
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="feature_covariance",
    title="Distance of feature covariances",
    source="FIRE, Theorem 1",
    what="|C - C'|_F with C = H H^T / |H|_F^2 [samples, samples], H the features of a group: of the network and of the "
    "same network with the reference (initial) weights, on the same samples.",
    unit="distance",
    direction="neither",
    range=(0.0, 2**0.5),
    needs=("features", "reference"),
    known="How far the representation has gone from where it started. Large is what learning does; the reading is for "
    "comparing treatments: one that keeps what was learned moves it little.",
)


def feature_covariance(h: Tensor, other: Tensor) -> float:
    """Return the distance of two networks' normalized feature covariances.

    Args:
        h: Features of one [samples, units].
        other: Features of the other on the same samples, of any number of units.

    Example:
        >>> import torch
        >>> h = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> feature_covariance(h, 3 * h.flip(1)), round(feature_covariance(h[:, :1], h[:, 1:]), 6)
        (0.0, 1.414214)
    """
    first, second = (x.double() / x.double().norm().clamp_min(1e-300) for x in (h, other))
    return float((first @ first.T - second @ second.T).norm())


def distances(features: Features, other: Features) -> dict[str, float]:
    """Return the distance for each group that both have seen.

    Raises:
        PlanError: They were not gathered on the same batches with the same seed, so that their rows do not match.
    """
    seen = [{name: group.samples for name, group in each.groups.items()} for each in (features, other)]
    shared = [name for name in seen[0] if name in seen[1]]
    if features.seed != other.seed or any(seen[0][name] != seen[1][name] for name in shared):
        raise PlanError(
            expected="features of both networks on the same batches, with the same seed",
            got=f"seeds {features.seed} and {other.seed}, {features.batches} and {other.batches} batches",
            fix="gather both with gather_features on the same list of batches, with one seed",
        )
    return {name: feature_covariance(features.groups[name].rows, other.groups[name].rows) for name in shared}


def measure(inputs: MetricInputs) -> Reading:
    """Return the distance from the reference for each group, and of the last group.

    Raises:
        PlanError: The live model or the batches are not there to be run again.
    """
    features, reference = inputs.features, inputs.reference
    assert features is not None and reference is not None
    features.check_seen(METRIC.key)
    if inputs.model is None or not inputs.batches:
        raise PlanError(
            expected="a live model and batches, to run it with the reference weights",
            got="none",
            fix="pass the model and data=, or leave feature_covariance out",
        )
    own = tensors_of(inputs.model)
    replaced = {name: value.to(own[name]) for name, value in reference.items() if name in own}
    then = gather_features(inputs.model, inputs.graph, list(inputs.batches), seed=features.seed, replaced=replaced)
    parts = distances(features, then)
    return Reading(METRIC.key, list(parts.values())[-1], parts)
