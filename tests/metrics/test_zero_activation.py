"""Zero activations: a count, and dead units."""

import pytest
import torch

from rekindle.metrics import zero_activation
from tests.metrics.live import live, tiny, vectors


def test_shares_by_hand():
    activations = torch.tensor([[0.0, 1.0, -0.0], [0.0, 0.0, 1e-30]])
    assert zero_activation.zero_activation(activations).tolist() == [1.0, 0.5, 0.5]


def test_reading_is_the_pure_function_on_what_readers_are_given():
    model, batches = tiny(), vectors()
    with torch.no_grad():
        model[0].weight[2], model[0].bias[2] = 0, -1
    reading = zero_activation.measure(live(model, batches))
    x = torch.cat([x for x, _ in batches])
    shares = [zero_activation.zero_activation(model[:depth](x)) for depth in (2, 4)]
    assert reading.parts == pytest.approx({"0": float(shares[0].mean()), "2": float(shares[1].mean())})
    assert reading.summary == pytest.approx(float(torch.cat(shares).mean()))
    assert 2 in reading.details["dead"]["0"]
