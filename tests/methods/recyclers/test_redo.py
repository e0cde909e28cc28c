"""ReDo: who is dormant, and what published code gets wrong."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError, SettingsError
from rekindle.methods.recyclers.redo import dormant


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)), torch.randn(16, 5)


def kill(layer, *units):
    with torch.no_grad():
        layer.bias[list(units)] = -100.0


def test_score_by_hand():
    magnitude = torch.tensor([4.0, 0.0, 1.0, 3.0])  # mean 2
    assert dormant(magnitude, 0.0).tolist() == [1]
    assert dormant(magnitude, 0.5).tolist() == [1, 2]
    assert dormant(magnitude, 0.49).tolist() == [1]
    assert dormant(torch.zeros(3), 0.0).tolist() == [0, 1, 2]


def test_dormant_units_are_recycled_in_the_model_itself():
    """Published code silences a copy of the weights, and never looks at the last hidden layer."""
    net, x = network()
    with torch.no_grad():
        net[2].bias += 3.0  # all others are alive
    kill(net[0], 2)
    kill(net[2], 1, 4)
    optimizer = torch.optim.Adam(net.parameters())
    keeper = rk.Keeper(net, optimizer, "redo:period=2,threshold=0", example=x)
    weights = {name: p.data_ptr() for name, p in net.named_parameters()}
    for step in range(2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        keeper.step()
        assert dict(keeper.recycled) == ({"0": 1, "2": 2} if step else {})
    assert weights == {name: p.data_ptr() for name, p in net.named_parameters()}
    assert (net[2].weight[:, 2] == 0).all() and (net[4].weight[:, [1, 4]] == 0).all()
    assert (net[2].weight != 0).sum() == 35 and (net[4].weight != 0).sum() == 15
    assert net[0].bias[2] > -1 and (net[2].bias[[1, 4]] > -1).all()
    moments = optimizer.state[net[4].weight]
    assert not moments["exp_avg"][:, [1, 4]].any() and moments["exp_avg"][:, [0, 2]].any()


def test_a_layer_that_is_dead_as_a_whole_learns_again():
    net, x = network()
    kill(net[2], *range(7))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    keeper = rk.Keeper(net, optimizer, "redo:period=1,threshold=0", example=x)
    start = net(x)
    for step in range(3):
        optimizer.zero_grad()
        (net(x) - 1).square().mean().backward()
        if step == 2:
            assert net[0].weight.grad.any() and net[2].weight.grad.any()
        optimizer.step()
        keeper.step()
    assert keeper.recycled["2"] >= 7
    assert not torch.equal(net(x) - net(x).mean(0), start - start.mean(0))


def test_only_the_step_of_recycling_is_looked_at():
    net, x = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    keeper = rk.Keeper(net, optimizer, "redo:period=3", example=x)
    net(x).sum().backward()
    keeper.step()
    keeper.step()  # no pass is needed here
    with pytest.raises(PlanError, match="forward pass"):
        keeper.step()


def test_skip():
    net, x = network()
    kill(net[0], 2)
    kill(net[2], 1)
    keeper = rk.Keeper(net, None, "redo:period=1,threshold=0,skip=2", example=x)
    net(x).sum().backward()
    keeper.step()
    assert dict(keeper.recycled) == {"0": 1}


def test_settings_are_checked():
    with pytest.raises(SettingsError):
        rk.method("redo:threshold=1.5")
