"""Dormant units: scores by hand, and a network with silent units."""

import pytest
import torch

from rekindle.kernels.per_feature import relative
from rekindle.metrics import dormant
from tests.metrics.live import live, tiny, vectors


def test_scores_by_hand():
    magnitude = torch.tensor([0.0, 0.1, 4.0, 3.9])  # mean 2
    assert relative(magnitude).tolist() == pytest.approx([0, 0.05, 2, 1.95])
    assert dormant.dormant(magnitude).tolist() == [True, False, False, False]
    assert dormant.dormant(magnitude, 0.05 + 1e-6).tolist() == [True, True, False, False]


def test_a_threshold_of_zero_counts_dead_units_and_a_silent_layer_is_dormant():
    assert dormant.dormant(torch.tensor([0.0, 1.0]), 0.0).tolist() == [True, False]
    assert dormant.dormant(torch.zeros(3)).all()


def test_silenced_units_are_found():
    model, batches = tiny(), vectors()
    with torch.no_grad():
        for unit in (1, 3):
            model[0].weight[unit], model[0].bias[unit] = 0, -1
        model[2].weight.abs_(), model[2].bias.fill_(1)
    reading = dormant.measure(live(model, batches))
    assert reading.details["units"] == {"0": [1, 3], "2": []}
    assert reading.parts == pytest.approx({"0": 2 / 6, "2": 0}) and reading.summary == pytest.approx(2 / 11)
    x = torch.cat([x for x, _ in batches])
    mean = model[:2](x).abs().mean(0)
    assert reading.details["scores"]["0"] == pytest.approx((mean / mean.mean()).tolist())
