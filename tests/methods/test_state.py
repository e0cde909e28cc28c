"""What methods are given to begin with, and what they keep."""

import copy

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError
from rekindle.graph.modules import tensors_of
from rekindle.graph.scan import scan
from rekindle.methods.kinds import PerStepMethod
from rekindle.methods.registry import settings_class
from rekindle.methods.state import MethodContext, MethodState, StartingWeights, no_gradients


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_only_what_takes_gradients_is_trained():
    model = net()
    model[0].weight.requires_grad_(False)
    context = MethodContext(model, scan(model), tensors_of(model), (), {}, 0)
    assert set(context.trained()) == {"0.bias", "1.weight", "1.bias", "2.weight", "2.bias"}
    assert all(tensor is model.get_parameter(name) for name, tensor in context.trained().items())


def test_a_weight_is_copied_when_it_is_first_asked_for_and_only_then():
    model = net()
    start = StartingWeights(model)
    first = copy.deepcopy(model)
    assert torch.equal(start["0.weight"], first[0].weight)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert torch.equal(start["0.weight"], first[0].weight), "asked for before: as it was"
    assert torch.equal(start["2.weight"], model[2].weight), "asked for now: as it is"
    assert len(start._copies) == 2 and start["0.weight"].grad_fn is None
    assert set(start) == set(tensors_of(model)) and len(start) == len(tensors_of(model)) and "0.bias" in start


def test_a_new_base_for_what_was_asked_for():
    model = net()
    start = StartingWeights(model)
    old = start["0.weight"].clone()
    with torch.no_grad():
        model[0].weight.add_(1)
    start.rebase()
    assert torch.equal(start["0.weight"], old + 1) and len(start._copies) == 1


def test_a_later_start_takes_over_what_the_earlier_one_has_seen():
    model = net()
    before = StartingWeights(model)
    old = before["0.weight"].clone()
    with torch.no_grad():
        model[0].weight.add_(1)
        model[2].weight.add_(1)
    after = StartingWeights(model, before)
    assert torch.equal(after["0.weight"], old) and torch.equal(after["2.weight"], model[2].weight)


def test_what_overrides_nothing_does_nothing():
    state = MethodState()
    assert state.penalty() is None and not state.watches(1) and list(state.after_step(1)) == []
    assert state.choose(1) == {} == state.state_dict() and state.edits(1) is None
    state.rebase()
    state.load_state_dict({})


@pytest.mark.parametrize("card", rk.list_methods(), ids=lambda card: card.key)
def test_per_step_methods_and_recyclers_can_be_started_and_one_shot_methods_not(card):
    assert isinstance(settings_class(card.key)(), PerStepMethod) == (card.kind in ("per-step", "recycler"))


def test_missing_gradients_are_told():
    assert isinstance(no_gradients(), KeeperError) and "before optimizer.zero_grad()" in no_gradients().fix
