"""Fisher score: against covariance matrices written out."""

import math

import pytest
import torch

from rekindle.errors import PlanError
from rekindle.metrics import fisher_score
from tests.metrics.live import live, tiny, vectors


def slow(x, labels):
    scores = []
    classes = sorted(set(labels.tolist()))
    for number, a in enumerate(classes):
        for b in classes[number + 1 :]:
            one, two = x[labels == a], x[labels == b]
            if min(len(one), len(two)) < 2:
                continue
            w = two.mean(0) - one.mean(0)
            within = sum(w @ torch.cov(part.T, correction=0) @ w for part in (one, two))
            scores.append(float((w @ w) ** 2 / within))
    return sum(scores) / len(scores)


def test_against_covariance_matrices():
    random = torch.Generator().manual_seed(0)
    x, labels = torch.randn(30, 4, generator=random, dtype=torch.float64), torch.arange(30) % 3
    labels[0] = 7  # a class with one sample counts for nothing
    assert fisher_score.fisher_score(x, labels) == pytest.approx(slow(x, labels))


def test_by_hand_and_without_pairs():
    x = torch.tensor([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0], [6.0, 2.0]])
    # w = (5, 0); (w.w)^2 = 625; variances along w: 0 and 25.
    assert fisher_score.fisher_score(x, torch.tensor([0, 0, 1, 1])) == pytest.approx(25)
    assert math.isnan(fisher_score.fisher_score(x, torch.zeros(4)))
    assert math.isnan(fisher_score.fisher_score(torch.ones(4, 2), torch.tensor([0, 0, 1, 1])))


def test_reading_is_that_of_the_heads_input():
    model, batches = tiny(), vectors()
    reading = fisher_score.measure(live(model, batches))
    x, labels = model[:4](torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches])
    assert reading.summary == pytest.approx(slow(x.double(), labels), rel=1e-5)
    assert reading.details["samples"] == {"4": 24}


def test_one_class_is_refused():
    batches = [(x, torch.zeros_like(y)) for x, y in vectors()]
    with pytest.raises(PlanError, match="two classes"):
        fisher_score.measure(live(tiny(), batches))
