"""Doubly sparse: independent zeros at the probability that was asked for."""

import pytest
import torch
from torch import nn

import rekindle as rk


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(20, 30, 3), nn.BatchNorm2d(30), nn.ReLU(), nn.Flatten(), nn.Linear(120, 50))


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.92, 0.98])
def test_the_share_of_zeros(probability):
    model = net()
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    record = rk.doubly_sparse_(model, probability=probability)
    for layer in (model[0], model[4]):
        zeros = float((layer.weight == 0).float().mean())
        assert zeros == pytest.approx(probability, abs=0.02)
    assert (model[1].weight == 0).any() and (model[4].bias == 0).any()
    for name, parameter in model.named_parameters():
        kept = parameter != 0
        assert torch.equal(parameter[kept], old[name][kept])
    zeros = sum(int(((p == 0) & (old[n] != 0)).sum()) for n, p in model.named_parameters())
    said = int(record.notices[0].split()[1])
    assert zeros <= said <= zeros + 30  # the shifts were zero before


def test_no_pattern_of_rows_or_columns():
    model = nn.Linear(200, 200, bias=False)
    rk.doubly_sparse_(model, probability=0.5)
    zeros = (model.weight == 0).float()
    assert zeros.mean(0).std() < 0.06 and zeros.mean(1).std() < 0.06  # 0.035 by chance


def test_moments_are_cleared_at_the_zeros():
    model = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    model(torch.rand(3, 6) + 1).sum().backward()
    optimizer.step()
    rk.doubly_sparse_(model, optimizer)
    assert torch.equal(optimizer.state[model.weight]["momentum_buffer"] == 0, model.weight == 0)


def test_weight_norm_survives_all_zeros():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    old = layer.weight.detach().clone()
    rk.doubly_sparse_(layer, probability=0.5)
    kept = layer.weight != 0
    assert torch.allclose(layer.weight[kept], old[kept], atol=1e-6) and not kept.all()
    rk.doubly_sparse_(layer, probability=1.0)
    assert not layer.weight.any() and torch.isfinite(layer(torch.ones(1, 4))).all()
