"""Weight size: norms by hand, also under weight_norm and for two heads."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from rekindle.errors import PlanError
from rekindle.metrics import weight_size
from rekindle.testing import ZOO
from tests.metrics.live import live, tiny, vectors


def slow(inputs, weight):
    norms = [sum(float(v) ** 2 for v in row) ** 0.5 for row in inputs]
    return sum(norms) / len(norms) * sum(float(v) ** 2 for v in weight.reshape(-1)) ** 0.5


def test_reading_is_by_hand():
    model, batches = tiny(), vectors()
    reading = weight_size.measure(live(model, batches))
    assert reading.summary == pytest.approx(slow(model[:4](torch.cat([x for x, _ in batches])), model[4].weight), 1e-5)


def test_weight_norm_is_multiplied_out():
    torch.manual_seed(0)
    model, batches = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), weight_norm(nn.Linear(6, 3))), vectors()
    with torch.no_grad():
        model[2].parametrizations.weight.original0.mul_(3)
    reading = weight_size.measure(live(model, batches))
    assert reading.summary == pytest.approx(slow(model[:2](torch.cat([x for x, _ in batches])), model[2].weight), 1e-5)


def test_two_heads_are_two_parts():
    member = ZOO["dueling"]
    reading = weight_size.measure(live(member.build(), [(member.example(), torch.zeros(16))]))
    assert set(reading.parts) == {"value", "advantage"} and reading.summary == max(reading.parts.values())


def test_a_head_without_a_module_is_not_guessed():
    member = ZOO["mlp_functional"]
    with pytest.raises(PlanError, match="no module"):
        weight_size.measure(live(member.build(), [(member.example(), torch.zeros(16))]))
