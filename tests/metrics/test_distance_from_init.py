"""Distance from the initial weights against loops."""

import math

import pytest
import torch
from torch import nn

from rekindle.metrics.distance_from_init import distance_from_init, measure
from tests.metrics.subjects import KINDS, subject_of, zoo_subject


def test_by_hand():
    assert distance_from_init(torch.tensor([[1.0, 4.0]]), torch.tensor([[1.0, 1.0]])) == 3.0


@pytest.mark.parametrize("name", KINDS)
def test_every_parameter_counts_once(name):
    subject = zoo_subject(name, moved=0.2)
    reading = measure(subject)
    assert set(reading.parts) == set(subject.graph.parameters)
    slow = 0.0
    for key in subject.graph.parameters:
        now, before = subject.tensors[key].detach().double().flatten(), subject.reference[key].double().flatten()
        square = sum((a - b) ** 2 for a, b in zip(now.tolist(), before.tolist(), strict=True))
        assert reading.parts[key] == pytest.approx(math.sqrt(square), rel=1e-5)
        assert reading.details["relative"][key] == pytest.approx(math.sqrt(square) / float(before.norm()), rel=1e-5)
        assert reading.details["norm_ratio"][key] == pytest.approx(float(now.norm() / before.norm()), rel=1e-5)
        slow += square
    assert reading.summary == pytest.approx(math.sqrt(slow), rel=1e-5)


def test_weight_norm_is_multiplied_out():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)))
    reference = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    reference["0.parametrizations.weight.original1"] *= 3
    reading = measure(subject_of(model, torch.zeros(1, 4), reference))
    assert reading.summary == pytest.approx(0, abs=1e-6) and len(reading.parts) == 2
    reference["0.parametrizations.weight.original0"] *= 2
    assert measure(subject_of(model, torch.zeros(1, 4), reference)).details["norm_ratio"][
        "0.parametrizations.weight.original1"
    ] == pytest.approx(0.5)
