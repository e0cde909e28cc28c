"""Selective reinitialization of single weights."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError
from rekindle.testing.aged import aged, learn
from rekindle.testing.zoo import ZOO


def test_the_least_useful_weights_are_drawn_by_the_layers_law():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    optimizer = torch.optim.Adam(net.parameters())
    keeper = rk.Keeper(net, optimizer, "selective_reinit:rate=0.25,period=2")
    x = torch.randn(16, 8)
    for step in range(2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        moments = {name: optimizer.state[p]["exp_avg"].clone() for name, p in net.named_parameters()}
        keeper.step()
        for name, p in net.named_parameters():
            changed = p.detach() != before[name]
            if not step or p.dim() == 1:
                assert not changed.any()
                continue
            utility = (before[name] * p.grad).abs()
            assert changed.sum() == p.numel() // 4
            assert utility[changed].max() <= utility[~changed].min()
            assert (p[changed].abs() <= p.shape[1] ** -0.5).all()
            moment = optimizer.state[p]["exp_avg"]
            assert not moment[changed].any()
            assert torch.equal(moment[~changed], moments[name][~changed])


def test_what_is_less_than_a_weight_adds_up():
    net = nn.Linear(5, 2)
    keeper = rk.Keeper(net, None, "selective_reinit:rate=0.03,period=1")
    changes = []
    for _ in range(8):
        net(torch.randn(4, 5)).square().sum().backward()
        before = net.weight.detach().clone()
        keeper.step()
        changes.append(int((net.weight != before).sum()))
    assert changes == [0, 0, 0, 1, 0, 0, 1, 0]  # 0.3 a time


def test_it_needs_no_example_and_works_on_any_model():
    for name in ("unknown_layer", "unknown_op"):
        member = rk.testing.zoo.NOT_UNDERSTOOD[name]
        model = member.build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        keeper = rk.Keeper(model, optimizer, "selective_reinit:rate=0.1,period=1")
        learn(model, member.example(), optimizer)
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        keeper.step()
        assert any((p != before[n]).any() for n, p in model.named_parameters())


def test_frozen_and_skipped_tensors_stay():
    model, _, optimizer = aged(ZOO["mlp"])
    model.layers[0].requires_grad_(False)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    keeper = rk.Keeper(model, optimizer, "selective_reinit:rate=0.5,period=1,skip=layers.1.*")
    keeper.step()
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert changed == {"layers.2.weight"}


def test_zeroed_gradients_are_an_error_that_says_what_to_do():
    net = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    keeper = rk.Keeper(net, optimizer, "selective_reinit:period=1")
    net(torch.randn(4, 5)).sum().backward()
    optimizer.zero_grad()
    with pytest.raises(KeeperError, match="before optimizer.zero_grad"):
        keeper.step()


def test_one_seed_one_result():
    def run(seed, noise):
        torch.manual_seed(0)
        net, x = nn.Linear(30, 20), torch.randn(8, 30)
        keeper = rk.Keeper(net, None, "selective_reinit:rate=0.1,period=1", seed=seed)
        torch.manual_seed(noise)
        for _ in range(3):
            net.zero_grad()
            net(x).square().sum().backward()
            keeper.step()
        return net.weight.detach()

    assert torch.equal(run(0, 1), run(0, 2))
    assert not torch.equal(run(0, 1), run(1, 1))
