"""Gradient norm: against backward on a copy."""

import copy

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.metrics import gradient_norm
from tests.metrics.live import classification, live, tiny, vectors


def test_against_backward_on_a_copy():
    model, batches = tiny(), vectors()
    reading = gradient_norm.measure(live(model, batches))
    twin = copy.deepcopy(model)
    (sum(classification(twin, batch) for batch in batches) / 3).backward()
    for name, parameter in twin.named_parameters():
        assert reading.parts[name] == pytest.approx(float(parameter.grad.norm()), rel=1e-4)
        assert reading.details["relative"][name] == pytest.approx(float(parameter.grad.norm() / parameter.norm()), 1e-4)
    assert reading.summary == pytest.approx(sum(value**2 for value in reading.parts.values()) ** 0.5)


def test_frozen_parameters_are_left_out_and_dropout_is_off():
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 3))
    model[0].weight.requires_grad_(False)
    first, second = (gradient_norm.measure(live(model, vectors(), seed=seed)) for seed in (0, 1))
    assert "0.weight" not in first.parts and first.parts == second.parts
    model.requires_grad_(False)
    with pytest.raises(PlanError, match="frozen"):
        gradient_norm.measure(live(model, vectors()))


def test_it_works_inside_no_grad():
    with torch.no_grad():
        assert gradient_norm.measure(live(tiny(), vectors())).summary > 0


def test_a_loss_that_is_not_a_number_is_refused():
    with pytest.raises(PlanError, match="one number"):
        gradient_norm.measure(live(tiny(), vectors(), loss=lambda model, batch: model(batch[0])))
