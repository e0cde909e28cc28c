"""What a run of ours assigns in a model is gone afterwards."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.branching.attributes import attributes_kept


class Holder:
    def __init__(self):
        self.kept = "before"


class Leaves(nn.Module):
    """Leaves something behind in every way that is looked at."""

    def __init__(self):
        super().__init__()
        self.fc, self.steps, self.old = nn.Linear(3, 2), 0, torch.ones(1)
        self.holder, self.history, self.by_name = Holder(), ["first"], {"a": 1}

    def forward(self, x):
        y = self.fc(x)
        self.last, self.old, self.steps = y, y, self.steps + 1
        self.holder.kept = self.holder.more = y
        self.history.append(y)
        self.by_name["a"] = y
        del self.fc.flag
        return y


def state(model):
    own = {n: v for n, v in vars(model).items() if not n.startswith("_")}
    return own, dict(vars(model.holder)), list(model.history), dict(model.by_name), model.fc.flag


def built():
    model = Leaves()
    model.fc.flag = "there"
    return model


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_put_back_also_after_an_error(error):
    model = built()
    before, containers = state(model), (model.history, model.by_name, model.holder)
    with pytest.raises(error), attributes_kept(model):
        model(torch.ones(1, 3))
        raise error
    assert state(model) == before and containers == (model.history, model.by_name, model.holder)


def test_a_trace_leaves_no_tensors_without_values_behind():
    model = built()
    before = state(model)
    rk.trace(model, torch.ones(1, 3))
    assert state(model) == before
