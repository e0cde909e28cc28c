"""Mono-sparse: the mask of doubly sparse, then identities."""

import torch
from torch import nn

import rekindle as rk
from rekindle.seeds import generator


def test_by_hand():
    model = nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3))
    old = model[0].weight.detach().clone()
    rk.mono_sparse_(model, probability=0.5, seed=4)
    mask = torch.rand(3, 2, 3, 3, generator=generator(4, "0.weight", "mono_sparse mask")) < 0.5
    assert torch.equal(model[0].weight, torch.where(mask, 0.0, old) + nn.init.dirac_(torch.empty(3, 2, 3, 3)))
    assert set(model[1].weight.tolist()) <= {1.0, 2.0} and (model[1].bias == 1).all()


def test_probability_zero_adds_identities_only():
    layer = nn.Linear(3, 3)
    old = layer.weight.detach().clone()
    rk.mono_sparse_(layer, probability=0.0)
    assert torch.allclose(layer.weight, old + torch.eye(3))


def test_all_zeros_and_an_identity_still_learn():
    """What doubly sparse weights at probability one cannot, these can."""
    gradients = {}
    for key in ("doubly_sparse", "mono_sparse"):
        model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))
        rk.apply_(f"{key}:probability=1.0", model)
        model(torch.rand(5, 4)).square().sum().backward()
        gradients[key] = float(model[0].weight.grad.abs().sum())
    assert gradients["doubly_sparse"] == 0 and gradients["mono_sparse"] > 0


def test_the_notice_counts_zeros():
    record = rk.mono_sparse_(nn.Linear(3, 2), probability=1.0)
    assert record.notices[0] == "sets 8 of 8 parameters to zero: sparsity 1.0000"


def test_moments_are_cleared_at_zeros_and_at_the_identity():
    layer = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0, momentum=0.9)
    layer(torch.rand(3, 6) + 1).sum().backward()
    optimizer.step()
    old = layer.weight.detach().clone()
    rk.mono_sparse_(layer, optimizer)
    assert torch.equal(optimizer.state[layer.weight]["momentum_buffer"] == 0, layer.weight != old)
