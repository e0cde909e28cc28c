"""Hare and Tortoise by hand: the average, the set-back, statistics, moments, and that both stay apart."""

import copy

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError
from rekindle.testing import ZOO
from rekindle.testing.aged import memory


def learn(model, optimizer, keeper, batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    keeper.step()


def test_against_a_plain_loop():
    """Three set-backs on a network with running statistics."""
    member = ZOO["cnn_bn"]
    model, twin = member.build(), member.build()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (model, twin)]
    keeper = rk.Keeper(model, optimizers[0], "hare_tortoise:momentum=0.8,period=2")
    slow = {n: t.clone() for n, t in twin.state_dict().items()}
    for step in range(1, 7):
        learn(model, optimizers[0], keeper, member.example())
        optimizers[1].zero_grad()
        twin(member.example()).square().mean().backward()
        optimizers[1].step()
        fast = twin.state_dict()
        slow = {n: 0.8 * t + 0.2 * fast[n] if t.is_floating_point() else fast[n].clone() for n, t in slow.items()}
        if step % 2 == 0:
            twin.load_state_dict(slow)
    for name, tensor in model.state_dict().items():
        assert torch.allclose(tensor, twin.state_dict()[name], rtol=1e-4, atol=1e-6), name


def test_running_statistics_are_averaged_and_counters_are_not():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    keeper = rk.Keeper(model, methods="hare_tortoise:momentum=0.5,period=1")
    with torch.no_grad():
        model[1].running_mean.fill_(2.0)
        model[1].num_batches_tracked.fill_(8)
    keeper.step()
    assert model[1].running_mean.tolist() == [1.0] * 4
    assert model[1].running_var.tolist() == [1.0] * 4
    assert model[1].num_batches_tracked.item() == 8
    assert "1.num_batches_tracked" not in keeper.state("hare_tortoise").tortoise


def test_both_stay_apart_after_a_set_back():
    """In published code they share memory then, and the tortoise takes the whole of the next step."""
    model = nn.Linear(1, 1, bias=False)
    keeper = rk.Keeper(model, methods="hare_tortoise:momentum=0.9,period=1")
    keeper.step()
    start = model.weight.item()
    with torch.no_grad():
        model.weight.add_(1.0)
    assert keeper.state("hare_tortoise").tortoise["weight"].item() == start
    keeper.step()
    assert keeper.state("hare_tortoise").tortoise["weight"].item() == pytest.approx(start + 0.1, abs=1e-6)


@pytest.mark.parametrize("clear", [False, True])
def test_moments(clear):
    model = ZOO["mlp"].build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    keeper = rk.Keeper(model, optimizer, rk.method(f"hare_tortoise:period=2,clear_moments={clear}"))
    learn(model, optimizer, keeper, ZOO["mlp"].example())
    assert all(moment.any() for moment in memory(model, optimizer).values())
    learn(model, optimizer, keeper, ZOO["mlp"].example())
    assert all(moment.any() != clear for moment in memory(model, optimizer).values())


def test_the_tortoise_can_be_used_to_predict():
    member = ZOO["cnn_bn"]
    model = member.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    keeper = rk.Keeper(model, optimizer, "hare_tortoise:momentum=0.5,period=100")
    learn(model, optimizer, keeper, member.example())
    twin = copy.deepcopy(model)
    assert not twin.load_state_dict(keeper.state("hare_tortoise").tortoise, strict=False).unexpected_keys
    assert not torch.equal(twin.eval()(member.example()), model.eval()(member.example()))


def test_small_steps_are_not_lost_in_bfloat16():
    model = nn.Linear(1, 1, bias=False).bfloat16()
    with torch.no_grad():
        model.weight.fill_(1.0)
    keeper = rk.Keeper(model, methods="hare_tortoise:momentum=0.999,period=1000")
    with torch.no_grad():
        model.weight.fill_(2.0)
    for _ in range(999):
        keeper.step()
    assert keeper.state("hare_tortoise").tortoise["weight"].item() == pytest.approx(2 - 0.999**999, abs=1e-4)
    keeper.step()
    assert model.weight.dtype == torch.bfloat16
    assert model.weight.item() == pytest.approx(1.632, abs=0.01)


def test_a_state_of_another_network_is_refused():
    states = [rk.Keeper(nn.Linear(2, size), methods="hare_tortoise").state_dict() for size in (2, 3)]
    keeper = rk.Keeper(nn.Linear(2, 2), methods="hare_tortoise")
    keeper.load_state_dict(states[0])
    with pytest.raises(KeeperError, match="weight"):
        keeper.load_state_dict(states[1])


def test_running_names_what_is_at_work():
    keeper = rk.Keeper(nn.Linear(2, 2), methods=["hare_tortoise", "l2"])
    assert keeper.state("l2").penalty() is not None
    with pytest.raises(KeeperError, match="hare_tortoise, l2"):
        keeper.state("redo")
