"""Full reset, by hand."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError


def net():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


def test_seeds_give_other_draws():
    a, b, c = net(), net(), net()
    for model, seed in ((a, 0), (b, 0), (c, 1)):
        rk.full_reset_(model, seed=seed)
    assert torch.equal(a[0].weight, b[0].weight) and not torch.equal(a[0].weight, c[0].weight)
    assert not torch.equal(a[0].weight.flatten()[:6], a[3].weight.flatten()[:6])


def test_a_function_that_builds_the_model_is_its_own_initializer():
    def build():
        model = net()
        nn.init.normal_(model[0].weight, 100, 1)
        return model

    model, state = net(), torch.get_rng_state()
    rk.full_reset_(model, reference=build, seed=4)
    assert float(model[0].weight.mean()) > 90 and torch.equal(state, torch.get_rng_state())
    again = net()
    rk.full_reset_(again, reference=build, seed=4)
    assert torch.equal(model[0].weight, again[0].weight)
    rk.full_reset_(again, reference=net())
    assert float(again[0].weight.mean()) < 90


def test_a_reset_network_trains_again():
    """Replaced modules never reach the optimizer; ours are the same objects."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    rk.full_reset_(model, optimizer)
    before = model[0].weight.detach().clone()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    assert not torch.equal(before, model[0].weight)


def test_a_missing_reference_is_asked_for():
    with pytest.raises(PlanError, match="none of that name"):
        rk.full_reset_(net(), reference={})
    with pytest.raises(PlanError, match="a state dict, a model, or a function"):
        rk.full_reset_(net(), reference=7)
