"""Self-normalized resets, against a slow version with a list of silences for each unit."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.methods.recyclers.snr import Snr, unusual


class Gate(nn.Module):
    """Units that fire when the input says so."""

    def __init__(self, units):
        super().__init__()
        self.gate, self.head = nn.Linear(units, units), nn.Linear(units, 2)
        with torch.no_grad():
            self.gate.weight.copy_(torch.eye(units))
            self.gate.bias.zero_()

    def forward(self, x):
        return self.head(self.gate(x).relu())


class Slow:
    def __init__(self, units, settings):
        self.past, self.silence, self.settings = [[] for _ in range(units)], [0] * units, settings

    def step(self, fired):
        dead = []
        for unit, past in enumerate(self.past):
            if fired[unit]:
                past.append(self.silence[unit])
                self.silence[unit] = 0
                continue
            self.silence[unit] += 1
            long = min(self.silence[unit], self.settings.longest)
            if len(past) < self.settings.firings:
                gone = self.silence[unit] >= self.settings.longest
            else:
                gone = sum(each >= long for each in past) <= self.settings.threshold * len(past)
            if gone:
                dead.append(unit)
                self.past[unit], self.silence[unit] = [], 0
        return dead


@pytest.mark.parametrize("settings", [Snr(threshold=0.1, firings=5, longest=6), Snr(threshold=0.0, firings=10)])
def test_against_the_slow_version(settings):
    units = 8
    generator = torch.Generator().manual_seed(0)
    rates = torch.linspace(0.05, 1.0, units)
    net, slow = Gate(units), Slow(units, settings)
    keeper = rk.Keeper(net, None, settings, example=torch.zeros(1, units))
    running = keeper.state("snr")
    total = 0
    for step in range(400):
        fired = torch.rand(units, generator=generator) < (rates if step < 200 else rates * (rates < 0.7))
        net(torch.stack([fired.float(), torch.zeros(units)])).sum().backward()
        before = keeper.recycled["gate"]
        keeper.step()
        dead = slow.step(fired.tolist())
        assert keeper.recycled["gate"] - before == len(dead)
        assert running.silence.tolist() == [min(each, settings.longest + 1) for each in slow.silence]
        with torch.no_grad():  # as it was, so that the input goes on to decide
            net.gate.weight.copy_(torch.eye(units))
            net.gate.bias.zero_()
        total += len(dead)
    assert total > 3


def test_rare_units_are_left_alone_and_regular_ones_are_not():
    net = Gate(2)
    keeper = rk.Keeper(net, None, "snr:firings=5", example=torch.zeros(1, 2))

    def step(first, second):
        net(torch.tensor([[float(first), float(second)]])).sum().backward()
        keeper.step()

    for n in range(60):
        step(True, n % 10 == 9)  # every step, and every tenth
    assert keeper.recycled.total() == 0
    net.head.weight.data.fill_(1.0)
    step(False, False)
    assert keeper.recycled["gate"] == 1
    assert (net.head.weight == 0).all(0).tolist() == [True, False]
    for _ in range(8):
        step(True, False)
    assert keeper.recycled["gate"] == 1  # nine silent steps are usual for the second, ten are not
    step(True, False)
    assert keeper.recycled["gate"] == 2


def test_by_hand():
    a = torch.tensor
    settings = Snr(threshold=0.05, firings=20, longest=9)
    silence, as_long, firings = a([0, 4, 4, 9, 8, 99]), a([20, 1, 2, 0, 0, 7]), a([20, 20, 20, 3, 3, 100])
    expected = [False, True, False, True, False, False]
    assert unusual(silence, as_long, firings, settings).tolist() == expected


def test_a_unit_that_never_fired_is_recycled_in_the_end():
    net = Gate(3)
    keeper = rk.Keeper(net, None, "snr:longest=5", example=torch.zeros(1, 3))
    for step in range(5):
        net(torch.tensor([[1.0, -1.0, 1.0]])).sum().backward()
        keeper.step()
        assert keeper.recycled["gate"] == (step == 4)


def test_units_that_are_never_zero_are_never_recycled():
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    keeper = rk.Keeper(net, None, "snr:longest=1,firings=1", example=torch.zeros(1, 3))
    for _ in range(10):
        net(torch.randn(8, 3)).sum().backward()
        keeper.step()
    assert keeper.recycled.total() == 0


def test_judged_only_every_period():
    net = Gate(2)
    keeper = rk.Keeper(net, None, "snr:longest=2,period=5", example=torch.zeros(1, 2))
    for step in range(5):
        net(torch.tensor([[1.0, -1.0]])).sum().backward()
        keeper.step()
        assert keeper.recycled["gate"] == (step == 4)


def test_a_silence_that_is_judged_late_is_not_compared_with_itself():
    """With a period a silence may pass `longest`, where it counts itself, before anyone looks."""
    net = Gate(2)
    keeper = rk.Keeper(net, None, "snr:longest=3,firings=4,threshold=0,period=8", example=torch.zeros(1, 2))
    for step in range(16):
        net(torch.tensor([[1.0, 1.0 if step < 8 else -1.0]])).sum().backward()
        keeper.step()
    assert keeper.recycled["gate"] == 1


def test_skipped_groups_are_not_touched():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    with torch.no_grad():
        net[0].bias[1] = net[2].bias[1] = -100.0
    keeper = rk.Keeper(net, None, "snr:longest=2,firings=50,skip=2", example=torch.zeros(1, 3))
    for _ in range(2):
        net(torch.randn(64, 3)).sum().backward()
        keeper.step()
    assert keeper.recycled["0"] >= 1 and "2" not in keeper.recycled
