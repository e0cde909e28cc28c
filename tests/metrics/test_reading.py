"""What a metric is given: each need is met or not."""

import pytest
import torch
from torch import nn

from rekindle.graph import trace
from rekindle.graph.scan import scan
from rekindle.metrics.reading import MetricInputs, Reading
from rekindle.metrics.registry import list_metrics

MODEL, X = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.ones(2, 3)
FULL = {"model": MODEL, "batches": (X,), "loss": lambda model, batch: model(batch).sum()}


@pytest.mark.parametrize(
    ("given", "met"),
    [
        ({}, {"weights"}),
        ({"graph": trace(MODEL, X)}, {"weights", "units"}),
        ({"reference": {}}, {"weights", "reference"}),
        ({"features": object()}, {"weights", "features"}),
        (FULL, {"weights", "loss"}),
        ({**FULL, "batches": ()}, {"weights"}),
        ({**FULL, "model": None}, {"weights"}),
        ({**FULL, "loss": None}, {"weights"}),
    ],
)
def test_needs(given, met):
    inputs = MetricInputs(dict(MODEL.named_parameters()), given.pop("graph", None) or scan(MODEL), **given)
    needs = ("weights", "units", "reference", "features", "loss")
    assert {need for need in needs if inputs.has(need)} == met


def test_every_metric_asks_for_what_there_is():
    inputs = MetricInputs({}, scan(MODEL))
    for card in list_metrics():
        assert card.needs and len(set(card.needs)) == len(card.needs), card.key
        assert all(inputs.has(need) == (need == "weights") for need in card.needs), card.key


def test_memory_and_details_are_of_one_alone():
    one, two = (MetricInputs({}, scan(MODEL)) for _ in range(2))
    one.memory["a"] = 1
    assert two.memory == {} and Reading("m", 1.0).parts == {}
