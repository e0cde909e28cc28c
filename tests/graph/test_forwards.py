"""Other forward passes for a time: they are run, and put back whatever happens."""

import pytest
import torch
from torch import nn

from rekindle.graph.forwards import forwards_replaced


def test_they_are_run_and_put_back():
    net, twice = nn.Sequential(nn.ReLU(), nn.ReLU()), nn.ReLU()
    twice.forward = own = lambda x: 2 * x  # of the instance, as some wrappers do
    with forwards_replaced([(net[0], lambda x: x + 1), (twice, lambda x: 5 * x)]):
        assert float(net(torch.tensor(1.0))) == 2 and twice(1) == 5
    assert "forward" not in net[0].__dict__ and twice.__dict__["forward"] is own


def test_after_a_failure_and_for_a_module_that_is_named_twice():
    layer = nn.ReLU()
    with pytest.raises(KeyError), forwards_replaced([(layer, lambda x: 1), (layer, lambda x: 2)]):
        assert layer(torch.ones(1)) == 2
        raise KeyError
    assert "forward" not in layer.__dict__
