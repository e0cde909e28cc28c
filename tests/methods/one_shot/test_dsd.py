"""DSD: the smallest by magnitude, and moments where the choice is made by values."""

import dataclasses

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.edit import Edits
from rekindle.kernels.subsets import smallest
from rekindle.methods.one_shot.dsd import Dsd
from rekindle.testing import ZOO, check_method


def net():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    with torch.no_grad():
        model[2].weight.mul_(1000)
    return model


def test_within_each_tensor():
    model = net()
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    rk.dsd_(model, fraction=0.3)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter != old[name], smallest(old[name], round(0.3 * old[name].numel())))


def test_among_all_the_large_layer_is_spared():
    model = net()
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    record = rk.dsd_(model, fraction=0.3, scope="global", which="weights")
    assert record.changed == 90 and int((model[0].weight != old["0.weight"]).sum()) >= 88
    limit = torch.cat([old["0.weight"].abs().flatten(), old["2.weight"].abs().flatten()]).kthvalue(90).values
    assert torch.equal(model[0].weight != old["0.weight"], old["0.weight"].abs() <= limit)


@pytest.mark.parametrize("scope", ["tensor", "global"])
def test_moments_are_cleared_where_values_are_drawn(scope):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    model(torch.randn(9, 10).abs()).square().sum().backward()
    optimizer.step()
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    had = {n: optimizer.state[p]["momentum_buffer"] != 0 for n, p in model.named_parameters()}
    rk.dsd_(model, optimizer, scope=scope)
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})  # gone where all of the tensor was drawn
        kept = state.get("momentum_buffer", torch.zeros_like(parameter)) != 0
        assert torch.equal(kept, had[name] & (parameter == old[name]))


def test_a_weight_that_is_drawn_to_its_old_value_still_loses_its_moments():
    """Scales of a normalization are all one before and after; the choice counts, not the difference."""
    norm = nn.LayerNorm(10)
    optimizer = torch.optim.SGD(norm.parameters(), lr=0.0, momentum=0.9)
    norm(torch.randn(4, 10)).pow(3).sum().backward()
    optimizer.step()
    rk.dsd_(norm, optimizer)
    assert (optimizer.state[norm.weight]["momentum_buffer"] == 0).tolist() == [True] * 2 + [False] * 8


def test_the_contract_holds_for_the_global_choice():
    check_method("dsd:scope=global", [ZOO["mlp"], ZOO["cnn_bn"], ZOO["gpt"], ZOO["weight_norm_mlp"]])


def test_the_contract_catches_an_edit_that_touches_more_than_it_says():
    class Liar(Dsd):
        def plan(self, graph, evidence, seed):
            planned = super().plan(graph, evidence, seed)
            spoiled = tuple(dataclasses.replace(edit, op=lambda old, *_: old + 1) for edit in planned.edits)
            return Edits(spoiled)

    with pytest.raises(AssertionError, match="changed outside the plan"):
        check_method(Liar(), [ZOO["mlp"]])


def test_what_is_frozen_is_not_counted_among_the_smallest_of_all():
    model, alone = net(), net()
    with torch.no_grad():
        model[0].weight.mul_(1e-6)
    model[0].requires_grad_(False)
    frozen = model[0].weight.clone()
    record = rk.dsd_(model, fraction=0.3, scope="global", which="weights")
    assert torch.equal(model[0].weight, frozen) and record.changed == round(0.3 * model[2].weight.numel())
    rk.dsd_(alone[2], fraction=0.3, which="weights")
    changed = [layer.weight != net()[2].weight for layer in (model[2], alone[2])]
    assert torch.equal(*changed)
