"""Margin: against a loop, over all of the data."""

import pytest
import torch

from rekindle.errors import PlanError
from rekindle.metrics import margin
from tests.metrics.live import live, tiny, vectors


def slow(logits, labels):
    found = []
    for row, label in zip(logits.double().softmax(1).tolist(), labels.tolist(), strict=True):
        found.append(row[label] - max(p for number, p in enumerate(row) if number != label))
    return found


def test_against_a_loop():
    logits, labels = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 5
    assert margin.margin(logits, labels).tolist() == pytest.approx(slow(logits, labels))


def test_reading_is_the_mean_of_the_smallest(monkeypatch):
    model, batches = tiny(), vectors()
    every = sorted(slow(model(torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches])))
    reading = margin.measure(live(model, batches))
    assert reading.details["smallest"] == pytest.approx(every[:12], rel=1e-5)
    assert reading.summary == pytest.approx(sum(every[:12]) / 12, rel=1e-5)
    assert reading.details["wrong"] == sum(value < 0 for value in every) / 24
    monkeypatch.setattr(margin, "SMALLEST", 3)
    assert margin.measure(live(model, batches)).summary == pytest.approx(sum(every[:3]) / 3, rel=1e-5)


def test_without_labels_it_says_so():
    with pytest.raises(PlanError, match="without integer targets"):
        margin.measure(live(tiny(), [(x, y.float()) for x, y in vectors()]))
