"""Effective rank: entropy by a loop, and from the features of a network."""

import math

import pytest
import torch

from rekindle.metrics import effective_rank
from tests.metrics.live import live, tiny, vectors


def slow(values):
    total, entropy = sum(values), 0.0
    for value in values:
        if value > 0:
            entropy -= value / total * math.log(value / total)
    return math.exp(entropy)


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [5.0, 0.0], [3.0, 2.0, 0.5, 0.01]])
def test_against_a_loop(values):
    assert effective_rank.effective_rank(torch.tensor(values)) == pytest.approx(slow(values), rel=1e-6)


def test_nothing_has_no_rank():
    assert effective_rank.effective_rank(torch.zeros(3)) == 0


def test_reading_is_that_of_the_svd_of_all_features():
    model, batches = tiny(), vectors()
    reading = effective_rank.measure(live(model, batches))
    values = torch.linalg.svdvals(model[:4](torch.cat([x for x, _ in batches])).double()).tolist()
    assert reading.details["rank"]["2"] == pytest.approx(slow(values), rel=1e-5)
    assert reading.parts["2"] == pytest.approx(slow(values) / 5, rel=1e-5)
