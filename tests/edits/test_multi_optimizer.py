"""Several optimizers behind the face of one."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

from rekindle.edits.multi_optimizer import MultiOptimizer, as_one
from rekindle.edits.write import moments


def stepped(*groups):
    """Optimizers after a step, each on some of two parameters."""
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))]
    made = [kind([parameters[n] for n in which], lr=0.1, **more) for kind, which, more in groups]
    for parameter in parameters:
        parameter.grad = torch.ones(2)
    for each in made:
        each.step()
    return *parameters, made


def test_none_one_or_several():
    a, b, (one, two) = stepped((Adam, [0], {}), (Adam, [1], {}))
    assert as_one([]) is None and as_one([one]) is one
    both = as_one([one, two])
    assert isinstance(both, MultiOptimizer) and both.param_groups == one.param_groups + two.param_groups


def test_each_parameter_has_the_state_of_its_own_optimizer():
    a, b, (one, two) = stepped((Adam, [0], {}), (SGD, [1], {"momentum": 0.9}))
    both = MultiOptimizer([one, two])
    assert both.state[a] is one.state[a] and both.state[b] is two.state[b]
    assert len(moments(both, a)) == 2 and len(moments(both, b)) == 1
    new = {"momentum_buffer": torch.zeros(2)}
    both.state[b] = new
    assert two.state[b] is new and b not in one.state


def test_moments_of_a_shared_parameter_are_those_of_all_and_steps_are_none():
    a, _, (one, two) = stepped((Adam, [0, 1], {}), (SGD, [0], {"momentum": 0.9}))
    found = moments(MultiOptimizer([one, two]), a)
    real = moments(one, a) + moments(two, a)
    assert len(found) == 3 and all(x is y for x, y in zip(found, real, strict=True))


def test_looking_at_a_foreign_parameter_makes_no_entry():
    a, b, pair = stepped((Adam, [0], {}), (SGD, [0], {"momentum": 0.9}))
    state = MultiOptimizer(pair).state
    assert b not in state and state.get(b) is None
    with pytest.raises(KeyError):
        state[b]
    with pytest.raises(KeyError):
        state[b] = {}
    assert all(list(each.state) == [a] for each in pair)


def test_several_optimizers_lose_and_get_back_state_of_their_own():
    a, b = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    pair = [Adam([a]), Adam([a, b])]
    for each in pair:
        for p in (a, b):
            p.grad = torch.ones(2)
        each.step()
    before = [{id(p): dict(s) for p, s in each.state.items()} for each in pair]
    state = MultiOptimizer(pair).state
    assert len(state) == 2 and set(state) == {a, b}
    taken = {p: state[p] for p in (a, b)}
    for p in (a, b):
        state.pop(p)
    assert not pair[0].state and not pair[1].state and state.get(a) is None
    state.update(taken)
    assert [{id(p): dict(s) for p, s in each.state.items()} for each in pair] == before
