"""Elements that began again lately keep their ages through rebinding, resuming and other Keepers."""

import copy

import pytest
import torch
from torch import nn

import rekindle as rk
from tests.keeper.keeping import EXAMPLE, network, same, train, values

METHOD = "cbp:rate=0.05,maturity=5"


def kept(seed=0):
    model = network(seed)
    optimizer = torch.optim.Adam(model.parameters())
    keeper = rk.Keeper(model, optimizer, METHOD, example=EXAMPLE)
    train(model, optimizer, keeper, 60)
    return model, optimizer, keeper


def test_a_new_optimizer_with_the_old_state_goes_on_bit_equal():
    results = []
    for again in (False, True):
        model, optimizer, keeper = kept()
        if again:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = torch.optim.Adam(model.parameters())
            optimizer.load_state_dict(state)
            keeper.rebind(optimizer)
        train(model, optimizer, keeper, 30, first=60)
        results.append(values(model))
    assert same(*results)


@pytest.mark.parametrize("order", ["keeper first", "optimizer first", "without an optimizer"])
def test_a_resumed_run_is_bit_equal_in_every_order(order):
    model, optimizer, keeper = kept()
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), keeper.state_dict()))
    train(model, optimizer, keeper, 30, first=60)
    other = network(3)
    other.load_state_dict(saved[0])
    fresh = torch.optim.Adam(other.parameters())
    if order == "optimizer first":
        fresh.load_state_dict(saved[1])
    again = rk.Keeper(other, None if order == "without an optimizer" else fresh, METHOD, example=EXAMPLE)
    again.load_state_dict(saved[2])
    if order == "without an optimizer":
        assert again.state_dict()["renewed"] == saved[2]["renewed"] or again.state_dict()["renewed"]
        again.rebind(fresh)
    if order != "optimizer first":
        fresh.load_state_dict(saved[1])
    train(other, fresh, again, 30, first=60)
    assert same(values(model), values(other))


def test_a_run_with_treatments_and_a_recycler_resumes_bit_equal():
    def begin():
        model = network(0)
        optimizer = torch.optim.Adam(model.parameters())
        methods = "shrink_perturb+cbp:rate=0.2,maturity=1"
        return model, optimizer, rk.Keeper(model, optimizer, methods, example=EXAMPLE)

    def go_on(model, optimizer, keeper, saved=None):
        for step in range(keeper.steps, 8):
            train(model, optimizer, keeper, 1, first=step)
            if step in (1, 2, 4):  # drops the state of whole tensors, in which units began again a step ago
                keeper.boundary()
            if step == 2 and saved is not None:
                saved += copy.deepcopy((model.state_dict(), optimizer.state_dict(), keeper.state_dict()))
        return values(model)

    saved = []
    whole = go_on(*begin(), saved)
    again = begin()
    for part, state in zip(again, saved, strict=True):
        part.load_state_dict(state)
    assert same(whole, go_on(*again))


def test_two_keepers_on_one_optimizer_keep_their_own():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = network(0), network(1)

    def started():
        pair = Pair()
        optimizer = torch.optim.Adam(pair.parameters())
        return pair, optimizer, [rk.Keeper(part, optimizer, METHOD, example=EXAMPLE) for part in (pair.a, pair.b)]

    def go(pair, optimizer, keepers, first):
        for number in range(first, first + 40):
            draw = torch.Generator().manual_seed(number)
            x = torch.randn(16, 8, generator=draw)
            optimizer.zero_grad()
            (pair.a(x).square().mean() + pair.b(x).square().mean()).backward()
            optimizer.step()
            for keeper in keepers:
                keeper.step()

    pair, optimizer, keepers = started()
    go(pair, optimizer, keepers, 0)
    saved = copy.deepcopy((pair.state_dict(), optimizer.state_dict(), [keeper.state_dict() for keeper in keepers]))
    go(pair, optimizer, keepers, 40)
    other, fresh, again = started()
    other.load_state_dict(saved[0])
    fresh.load_state_dict(saved[1])
    for keeper, state in zip(again, saved[2], strict=True):
        keeper.load_state_dict(state)
    go(other, fresh, again, 40)
    assert same(values(pair), values(other))
