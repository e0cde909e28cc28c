"""Fisher score: how well the features before the head set classes apart."""

from __future__ import annotations

import torch
from torch import Tensor

from rekindle.errors import PlanError
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="fisher_score",
    title="Fisher discriminative score",
    source="Frozen weights (Z), 6.6, after Fisher 1936",
    what="For two classes, with w = mu2 - mu1 of the features that the head is given: "
    "(w.(mu2 - mu1))^2 / (w.S1.w + w.S2.w), S the covariances; the mean over all pairs of classes with two "
    "samples or more. w is not rescaled by the inverse of the covariances, as Fisher's would be: that is "
    "the paper's simplification.",
    unit="ratio",
    direction="higher",
    range=(0.0, float("inf")),
    needs=("features",),
    known="Says how linearly separable the classes are already, in Z set against the final loss. For data that the "
    "network is still to learn a low score is no sickness. Pairs without any spread are left out.",
)


def fisher_score(features: Tensor, labels: Tensor) -> float:
    """Return the mean score over pairs of classes; NaN where there is no pair that has one.

    Args:
        features: [samples, units].
        labels: [samples].

    Example:
        >>> fisher_score(torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([0, 0, 1, 1]))
        50.0
    """
    x = features.double()
    classes = [c for c in labels.unique() if int((labels == c).sum()) > 1]
    if len(classes) < 2:
        return float("nan")
    means = torch.stack([x[labels == c].mean(0) for c in classes])  # [classes, units]
    spread = torch.stack([_spread(x[labels == c], means, i) for i, c in enumerate(classes)])  # [class, toward]
    between = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist").square()
    within = spread + spread.T
    first, second = torch.triu_indices(len(classes), len(classes), 1)
    # |w|^4 / (w.S.w), with w.S.w = variance of the samples along w, over both classes.
    pairs = between[first, second].square() / within[first, second]
    known = within[first, second] > 0
    return float(pairs[known].mean()) if bool(known.any()) else float("nan")


def _spread(samples: Tensor, means: Tensor, own: int) -> Tensor:
    """Return w.S.w of one class toward every other: the variance of its samples along w."""
    along = (samples - means[own]) @ (means - means[own]).T  # [samples, classes]
    return along.square().mean(0)


def measure(inputs: MetricInputs) -> Reading:
    """Return the score for what each head is given, and the mean.

    Raises:
        PlanError: No head was seen together with labels of two classes.
    """
    features = inputs.features
    assert features is not None
    heads = {path: head for path, head in features.heads.items() if head.labels is not None}
    parts = {path: fisher_score(head.inputs, head.labels) for path, head in heads.items() if head.labels is not None}
    parts = {path: score for path, score in parts.items() if score == score}
    if not parts:
        raise PlanError(
            expected="a head whose input can be seen, and labels of two classes or more, with two samples each",
            got="no head that can be seen" if not features.heads else "no such labels beside it",
            fix="pass data= as batches (inputs, integer targets) with several classes, or leave fisher_score out",
        )
    return Reading(
        METRIC.key, sum(parts.values()) / len(parts), parts, {"samples": {p: len(heads[p].inputs) for p in parts}}
    )
