"""Sharpness: a quadratic whose change is known, and a network against noise written into a copy."""

import copy

import pytest
import torch

from rekindle.metrics import sharpness
from rekindle.seeds import generator
from tests.metrics.live import classification, live, tiny, vectors


def test_a_quadratic_changes_by_the_variance_of_the_noise():
    w = {"w": torch.full((20000,), 3.0)}
    curve = sharpness.sharpness(lambda p: float((p["w"] - w["w"]).square().mean()), w, sizes=[0.1, 0.2], repeats=3)
    assert curve.means == pytest.approx([0.09, 0.36], rel=0.03)
    assert all(0 < deviation < 0.02 for deviation in curve.deviations)


def test_reading_is_that_of_noise_written_into_copies():
    model, batches = tiny(), vectors()
    reading = sharpness.measure(live(model, batches, seed=4))

    def loss(net):
        return sum(float(classification(net, batch)) for batch in batches) / 3

    changes = []
    for repeat in range(5):
        twin = copy.deepcopy(model)
        with torch.no_grad():
            for name, p in twin.named_parameters():
                noise = torch.randn(p.shape, generator=generator(4, name, f"sharpness {repeat}"))
                p.add_(0.1 * p.square().mean().sqrt() * noise)
        changes.append(loss(twin) - loss(model))
    assert reading.details["changes"][2] == pytest.approx(changes, abs=1e-5)
    assert reading.summary == pytest.approx(sum(changes) / 5, abs=1e-5)
    sizes, means, deviations = zip(*reading.details["curve"], strict=True)
    assert sizes == (0.01, 0.03, 0.1, 0.3) and means[2] == reading.summary
    assert deviations[2] == pytest.approx(float(torch.tensor(changes).std()), abs=1e-5)


def test_zero_tensors_get_no_noise_and_directions_are_shared_by_sizes():
    w = {"bias": torch.zeros(3), "w": torch.ones(4)}
    near, far = (sharpness.noisy(w, size, seed=0, repeat=1) for size in (0.1, 0.2))
    assert not near["bias"].any()
    torch.testing.assert_close(far["w"] - 1, 2 * (near["w"] - 1))


def test_samples_are_bounded(monkeypatch):
    monkeypatch.setattr(sharpness, "SAMPLES", 9)
    assert sharpness.measure(live(tiny(), vectors(5, 8))).details["samples"] == 16
