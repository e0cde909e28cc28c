"""A watched model can be copied and saved; what watches is in neither."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.own_run import watching
from rekindle.observe.hidden_hooks import keep_out_of_copies, let_into_copies
from rekindle.testing.aged import hooks

X = torch.ones(2, 4)


class Odd(nn.Linear):
    """A layer that decides itself what of it is copied."""

    def __getstate__(self):
        return {**self.__dict__, "copied": True}


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), Odd(5, 3), nn.ReLU(), nn.Linear(3, 2))


def saved(model):
    held = io.BytesIO()
    torch.save(model, held)
    held.seek(0)
    return torch.load(held, weights_only=False)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), saved])
def test_copies_are_without_hooks_and_the_model_keeps_them(way):
    model = net()
    keeper = rk.Keeper(model, None, "redo:period=1", example=X)
    assert sum(hooks(model)) == 2
    twin = way(model)
    assert not any(hooks(twin)) and sum(hooks(model)) == 2
    assert twin[2].copied and torch.equal(twin(X), model(X))
    assert "__getstate__" not in twin[2].__dict__
    keeper.close()
    assert not any(hooks(model)) and "__getstate__" not in model[2].__dict__


def test_hooks_of_others_are_copied():
    model = net()
    model[2].register_forward_pre_hook(_others)
    keeper = rk.Keeper(model, None, "redo:period=1", example=X)
    assert sum(hooks(copy.deepcopy(model))) == 1
    keeper.close()
    assert sum(hooks(model)) == 1


def _others(module, args):
    return None


def test_with_two_that_watch_the_first_to_go_does_not_let_the_other_in():
    layer = nn.Linear(2, 2)
    handles = [layer.register_forward_pre_hook(watching(lambda *_: None)) for _ in range(2)]
    keep_out_of_copies(layer)
    handles[0].remove()
    let_into_copies(layer)
    assert not any(hooks(copy.deepcopy(layer))) and any(hooks(layer))
    handles[1].remove()
    let_into_copies(layer)
    assert "__getstate__" not in layer.__dict__
