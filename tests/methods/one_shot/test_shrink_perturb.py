"""Shrink-and-perturb, by hand."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError


def net():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


def test_shrink_towards_a_reference():
    model, start = net(), net().state_dict()
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    rk.shrink_perturb_(model, shrink=0.6, reference=start)
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter, 0.4 * old[name] + 0.6 * start[name])


def test_two_knobs_with_fresh_draws():
    model = nn.Linear(200, 100)
    with torch.no_grad():
        model.weight.fill_(1.0)
    rk.shrink_perturb_(model, shrink=0.5, perturb=0.1, seed=3)
    noise = (model.weight.detach() - 0.5) / 0.1
    bound = 200**-0.5
    assert float(noise.abs().max()) <= bound + 1e-5
    assert float(noise.std()) == pytest.approx(bound / 3**0.5, rel=0.02)


def test_normalization_goes_back_to_one_and_zero():
    model = net()
    with torch.no_grad():
        model[1].weight.fill_(3.0)
        model[1].bias.fill_(2.0)
    rk.shrink_perturb_(model, shrink=0.5)
    assert (model[1].weight == 2).all() and (model[1].bias == 1).all()


def test_a_missing_reference_is_asked_for():
    with pytest.raises(PlanError, match="pass reference="):
        rk.shrink_perturb_(net(), noise="reference")
    with pytest.raises(PlanError, match=r"shape \(3, 4\)"):
        rk.shrink_perturb_(net(), noise="reference", reference=nn.Sequential(nn.Linear(5, 3)))
