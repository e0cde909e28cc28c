"""Continual backpropagation, against a slow version that keeps everything."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.testing.zoo import ZOO


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))


class Slow:
    """The same in plain loops over units, each with a list of all it has done."""

    def __init__(self, net, rate, maturity, decay):
        self.layers = [(net[0], net[2]), (net[2], net[4])]
        self.rate, self.maturity, self.decay = rate, maturity, decay
        self.past = [[[] for _ in range(a.out_features)] for a, _ in self.layers]
        self.due = [0.0, 0.0]

    def average(self, values):
        total, weights = 0.0, 0.0
        for back, value in enumerate(reversed(values)):
            total += self.decay**back * value
            weights += self.decay**back
        return total / weights

    def step(self, inputs):
        """Return the units to recycle and the biases that are expected afterwards."""
        chosen, biases = [], []
        for layer, (_, reader) in enumerate(self.layers):
            for unit, past in enumerate(self.past[layer]):
                h = inputs[layer][:, unit]
                size = reader.weight.detach()[:, unit].abs().sum()
                past.append((float(h.abs().mean() * size), float(h.mean())))
            old = [unit for unit, past in enumerate(self.past[layer]) if len(past) > self.maturity]
            self.due[layer] += self.rate * len(old)
            count = int(self.due[layer])
            self.due[layer] -= count
            rank = sorted(old, key=lambda unit, n=layer: self.average([u for u, _ in self.past[n][unit]]))
            chosen.append(sorted(rank[:count]))
            bias = reader.bias.detach().clone()
            for unit in chosen[-1]:
                bias += reader.weight[:, unit].detach() * self.average([m for _, m in self.past[layer][unit]])
                self.past[layer][unit] = []
            biases.append(bias)
        return chosen, biases


def silent(reader):
    return set((reader.weight == 0).all(0).nonzero().reshape(-1).tolist())


@pytest.mark.parametrize(("rate", "maturity", "decay"), [(0.05, 3, 0.9), (0.2, 0, 0.99), (0.3, 5, 0.0)])
def test_against_the_slow_version(rate, maturity, decay):
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    spec = f"cbp:rate={rate},maturity={maturity},decay={decay}"
    keeper = rk.Keeper(net, optimizer, spec, example=torch.zeros(1, 5))
    slow = Slow(net, rate, maturity, decay)
    total = 0
    for step in range(25):
        x = torch.randn(16, 5, generator=torch.Generator().manual_seed(step))
        inputs = [net[:2](x).detach(), net[:4](x).detach()]
        keeper._engaged.watch.clear()  # the line above went through the hooks as well
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        chosen, biases = slow.step(inputs)
        before, were = dict(keeper.recycled), [silent(net[2]), silent(net[4])]
        keeper.step()
        for name, reader, units, others in (("0", net[2], chosen[0], chosen[1]), ("2", net[4], chosen[1], [])):
            assert keeper.recycled[name] - before.get(name, 0) == len(units)
            assert silent(reader) == were[name == "2"] | set(units)
            kept = [u for u in range(reader.out_features) if u not in others]  # recycled ones have a fresh bias
            torch.testing.assert_close(reader.bias[kept].detach(), biases[name == "2"][kept], rtol=1e-4, atol=1e-5)
        total += sum(map(len, chosen))
    assert total > 10


def test_fractions_add_up_and_the_young_are_safe():
    net = network()
    keeper = rk.Keeper(net, None, "cbp:rate=0.11,maturity=4", example=torch.zeros(1, 5))
    counts = []
    for _ in range(8):
        net(torch.randn(8, 5)).sum().backward()
        keeper.step()
        counts.append((keeper.recycled["0"], keeper.recycled["2"]))
    # From step 5 on 6 and 7 units are mature: 0.66, 1.32, then 5: 0.87, 1.42; and 0.77, 1.54, then 6: 1.2.
    assert counts == [(0, 0)] * 5 + [(1, 1), (1, 2), (2, 2)]


def test_a_unit_that_the_nonlinearity_silences_has_no_utility():
    """Published code scores before BatchNorm and ReLU, where a dead unit looks alive."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(20, 2))
    with torch.no_grad():
        net[1].bias[3] = -100.0
        net[0].weight[3] *= 50.0
    keeper = rk.Keeper(net, None, "cbp:rate=0.2,maturity=0", example=torch.zeros(2, 3, 4, 4))
    net(torch.randn(8, 3, 4, 4)).sum().backward()
    keeper.step()
    assert keeper.recycled["0"] == 1
    assert (net[1].bias[3], net[1].weight[3]) == (0, 1)
    assert (net[4].weight == 0).all(0).reshape(5, 4).all(1).tolist() == [False, False, False, True, False]


def test_old_activations_fade():
    """Published code adds magnitudes up without decay: what was once large stays."""
    net = network()
    keeper = rk.Keeper(net, None, "cbp:rate=0.166667,maturity=30,decay=0.5", example=torch.zeros(1, 5))
    with torch.no_grad():
        net[0].bias[:] = torch.tensor([1.0, 1.0, 500.0, 1.0, 1.0, 1.0])
        net[0].weight.mul_(0.1)
        net[2].weight.fill_(0.1)
    for step in range(32):
        if step == 10:
            with torch.no_grad():
                net[0].bias[2] = -100.0
        net(torch.randn(8, 5)).sum().backward()
        keeper.step()
    assert keeper.recycled["0"] >= 1
    assert net[0].bias[2] > -1


def test_utility_of_a_stream_is_the_sum_over_its_readers():
    member = ZOO["resnet_basic"]
    model, example = member.build(), member.example()
    keeper = rk.Keeper(model, None, "cbp:decay=0", example=example)
    given = {}
    readers = ("stages.0.0.conv1", "stages.0.1.conv1", "stages.1.0.conv1", "stages.1.0.shortcut.0")
    for path in readers:
        module = model.get_submodule(path)
        module.register_forward_pre_hook(lambda _, args, path=path: given.__setitem__(path, args[0].detach()))
    model(example).sum().backward()
    keeper.step()
    expected = sum(
        given[path].abs().mean((0, 2, 3)) * model.get_submodule(path).weight.abs().sum((0, 2, 3)) for path in readers
    )
    running = keeper.state("cbp")
    found = running.layout.per_unit(running.utility)[running.layout.units["conv"]]
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


def test_utility_under_weight_norm_is_of_the_weight_itself():
    member = ZOO["weight_norm_mlp"]
    model, example = member.build(), member.example()
    keeper = rk.Keeper(model, None, "cbp:decay=0", example=example)
    given = []
    model.fc.register_forward_pre_hook(lambda _, args: given.append(args[0].detach()))
    model(example).sum().backward()
    keeper.step()
    expected = (given[0].abs().mean(0) * model.fc.weight.detach().abs().sum(0)).reshape(7, 4).sum(1)
    running = keeper.state("cbp")
    found = running.layout.per_unit(running.utility)[running.layout.units["conv"]]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
