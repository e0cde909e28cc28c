"""A model whose parts were replaced is noticed; one that was trained is not."""

import copy

import pytest
import torch
from torch import nn

from rekindle.graph.fingerprint import Fingerprint


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))


def replace_inner(model):
    model[2][0] = nn.Linear(4, 2)


def replace_parameter(model):
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())


def add_a_module(model):
    model.append(nn.ReLU())


def drop_a_parameter(model):
    model[0].bias = None


def freeze(model):
    model[0].requires_grad_(False)


def other_type(model):
    model.to(torch.float64)


@pytest.mark.parametrize(
    "change", [replace_inner, replace_parameter, add_a_module, drop_a_parameter, other_type, freeze]
)
def test_a_change_is_noticed(change):
    model = net()
    fingerprint = Fingerprint(model)
    change(model)
    assert not fingerprint.holds()


def test_what_keeps_the_parts_is_none():
    model = net()
    fingerprint = Fingerprint(model, flags=False)
    assert fingerprint.holds()
    model(torch.ones(1, 3)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    model.load_state_dict(net().state_dict())
    model.eval().requires_grad_(False)
    model[0].register_forward_hook(lambda *_: None)
    assert fingerprint.holds()


def test_it_is_of_this_model_and_not_of_its_copy():
    model = net()
    other = copy.deepcopy(model)
    fingerprint = Fingerprint(other)
    replace_inner(model)
    assert fingerprint.holds()
    assert Fingerprint(nn.ReLU()).holds(), "a model without parameters"
