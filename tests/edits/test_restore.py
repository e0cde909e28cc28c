"""A state dict that tells of a changed structure goes into a model that was built afresh."""

import copy

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.inserted import Injected, is_standardized
from rekindle.errors import PlanError

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("times", [1, 2, 3])
def test_injections_within_each_other(times):
    model, fresh = net(), net(seed=1)
    for _ in range(times):
        rk.plasticity_injection_(model, head="2")
        with torch.no_grad():
            model[2].new.bias.add_(1.0)  # something was learned
    rk.restore_(fresh, model.state_dict())
    assert torch.equal(fresh(X), model(X))
    for (name, p), (other, q) in zip(model.named_parameters(), fresh.named_parameters(), strict=True):
        assert name == other and p.requires_grad == q.requires_grad
    assert {name for name, p in fresh.named_parameters() if p.requires_grad} == {
        "0.weight",
        "0.bias",
        "2.new.weight",
        "2.new.bias",
    }


def test_what_is_there_already_is_only_loaded():
    model = net()
    rk.plasticity_injection_(model, head="2")
    other = copy.deepcopy(model)
    with torch.no_grad():
        model[2].new.weight.add_(1.0)
    wrapper = other[2]
    rk.restore_(other, model.state_dict())
    assert other[2] is wrapper and isinstance(wrapper.frozen, nn.Linear) and torch.equal(other(X), model(X))


def test_a_plain_state_dict_is_loaded_as_usual():
    model, fresh = net(), net(seed=1)
    rk.restore_(fresh, model.state_dict())
    assert torch.equal(fresh(X), model(X)) and not any(isinstance(m, Injected) for m in fresh.modules())


def test_the_optimizer_has_new_parameters_in_the_place_of_frozen_ones():
    model, fresh = net(), net(seed=1)
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.1) for each in (model, fresh)]
    rk.plasticity_injection_(model, optimizers[0], head="2")
    model(X).square().sum().backward()
    optimizers[0].step()
    rk.restore_(fresh, model.state_dict(), optimizers[1])
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for each, optimizer in zip((model, fresh), optimizers, strict=True):
        optimizer.zero_grad()
        each(X).square().sum().backward()
        optimizer.step()
    assert torch.equal(model(X), fresh(X))


@pytest.mark.parametrize(("block", "expected"), [("1", [("1", "after")]), ("0", [("2", "before")])])
def test_a_fixed_normalization(block, expected):
    model, fresh = net().eval(), net(seed=1).eval()
    rk.layerwise_(model, example=X, data=[X], blocks=(block, "2"))
    rk.restore_(fresh, model.state_dict())
    for each in (model, fresh):
        modules = each.named_modules()
        found = [(name, side) for name, m in modules for side in ("before", "after") if is_standardized(m, side)]
        assert found == expected
    assert torch.equal(model(X), fresh(X))


def test_a_model_that_does_not_fit_is_left_as_it_was():
    model = net()
    rk.plasticity_injection_(model, head="2")
    without = nn.Sequential(nn.Linear(3, 4))
    with pytest.raises(PlanError, match="path of a module"):
        rk.restore_(without, model.state_dict())
    wider = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 9))
    before = {name: tensor.clone() for name, tensor in wider.state_dict().items()}
    with pytest.raises(RuntimeError, match="size mismatch"):
        rk.restore_(wider, model.state_dict())
    assert isinstance(wider[2], nn.Linear) and all(p.requires_grad for p in wider.parameters())
    assert list(wider.state_dict()) == list(before)


def test_what_torch_would_load_nothing_into_is_refused():
    model = net().to("meta")
    with pytest.raises(rk.RekindleError, match="0.weight: on the meta device"):
        rk.restore_(model, net().state_dict())
    model = net()
    model.wide = nn.Parameter(torch.rand(2, 1).expand(2, 3))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(rk.RekindleError, match="wide: several of its elements share memory"):
        rk.restore_(model, {name: 2 * tensor for name, tensor in before.items()})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
