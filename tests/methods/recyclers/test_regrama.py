"""ReGraMa: units by their gradients."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError, NoEffectWarning, SettingsError
from rekindle.graph import trace
from rekindle.methods.recyclers.regrama import magnitude, stuck
from rekindle.testing.zoo import ZOO


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)), torch.randn(16, 5)


def test_score_by_hand():
    gradients = torch.tensor([4.0, 0.0, 0.02, 3.98])  # mean 2
    assert stuck(gradients, 0.0).tolist() == [1]
    assert stuck(gradients, 0.01).tolist() == [1, 2]
    assert stuck(torch.zeros(4), 0.01).tolist() == []


def test_magnitude_is_the_mean_over_incoming_weights():
    net, x = network()
    graph = trace(net, x)
    net(x).square().sum().backward()
    found = magnitude(graph.group("2"), dict(net.named_parameters()))
    torch.testing.assert_close(found, net[2].weight.grad.abs().mean(1))


def test_magnitude_of_a_stream_is_over_all_that_write_it():
    member = ZOO["rms_norm_mlp"]
    model = member.build()
    graph = trace(model, member.example())
    model(member.example()).square().sum().backward()
    writers = [model.embed, model.down[0], model.down[1]]
    rows = torch.cat([layer.weight.grad for layer in writers], 1)  # a row holds all that writes a unit
    torch.testing.assert_close(magnitude(graph.group("embed"), dict(model.named_parameters())), rows.abs().mean(1))


def test_a_saturated_unit_is_found_though_its_activation_is_large():
    net, x = network()
    with torch.no_grad():
        net[0].bias[2] = 40.0  # tanh is 1 there, with no gradient
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    keeper = rk.Keeper(net, optimizer, "regrama:period=2", example=x)
    for _ in range(2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        keeper.step()
    assert dict(keeper.recycled) == {"0": 1}
    assert net[0].bias[2] < 1 and (net[2].weight[:, 2] == 0).all()


class Branches(nn.Module):
    """One branch is blocked by a dead layer, the other learns."""

    def __init__(self):
        super().__init__()
        self.low, self.dead, self.up = nn.Linear(5, 6), nn.Linear(6, 7), nn.Linear(7, 2)
        self.side, self.out = nn.Linear(5, 4), nn.Linear(4, 2)
        with torch.no_grad():
            self.dead.bias.fill_(-100.0)
            self.side.bias[1] = 40.0

    def forward(self, x):
        return self.up(self.dead(self.low(x).tanh()).relu()) + self.out(self.side(x).tanh())


def test_a_layer_without_any_gradient_is_left_alone():
    """A dead layer blocks all below it: recycling those would throw away what they know."""
    torch.manual_seed(0)
    net = Branches()
    keeper = rk.Keeper(net, None, "regrama:period=2", example=torch.zeros(1, 5))
    net(torch.randn(8, 5)).square().sum().backward()
    keeper.step()
    keeper.step()
    assert not net.low.weight.grad.any() and not net.dead.weight.grad.any()
    assert dict(keeper.recycled) == {"side": 1}


def test_zeroed_gradients_are_an_error_that_says_what_to_do():
    net, x = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    keeper = rk.Keeper(net, optimizer, "regrama:period=2", example=x)
    net(x).sum().backward()
    optimizer.zero_grad()
    keeper.step()
    with pytest.raises(KeeperError, match=r"before optimizer.zero_grad\(\)"):
        keeper.step()


def test_gradients_that_are_all_zero_are_told():
    net, x = network()
    keeper = rk.Keeper(net, None, "regrama:period=2", example=x)
    (0 * net(x)).sum().backward()
    keeper.step()
    with pytest.warns(NoEffectWarning, match="all incoming weights are zero"):
        keeper.step()
    assert keeper.recycled.total() == 0


def test_a_period_of_one_would_recycle_what_has_no_gradient_yet():
    with pytest.raises(SettingsError):
        rk.method("regrama:period=1")
