"""What every per-step method promises, on small networks; methods are found by themselves."""

import dataclasses
import io

import pytest
import torch
from torch.utils import _pytree as pytree

import rekindle as rk
from rekindle.errors import SettingsError
from rekindle.graph.export import as_call
from rekindle.methods.registry import settings_class
from rekindle.testing import ZOO, check_card
from rekindle.testing.aged import bits, graph_of, memory, same

PER_STEP = [card.key for card in rk.list_methods() if card.kind == "per-step"]
MODELS = ["mlp", "cnn_bn", "vit_fused"]


def lively(key):
    """Settings with which a method acts within six steps."""
    cls = settings_class(key)
    names = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in {"period": 2, "rate": 0.2}.items() if name in names})


def loss_of(model, batch):
    args, kwargs = as_call(batch)
    leaves = pytree.tree_leaves(model(*args, **kwargs))
    return torch.stack([x.square().mean() for x in leaves if torch.is_tensor(x) and x.is_floating_point()]).sum()


def train(model, optimizer, keeper, batch, steps):
    for _ in range(steps):
        loss = loss_of(model, batch)
        if keeper is not None:
            loss = loss + keeper.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if keeper is not None:
            keeper.step()


def set_up(member, method=None, make=torch.optim.Adam):
    model = member.build()
    optimizer = make(model.parameters(), lr=1e-2)
    return model, optimizer, method and keep(member, model, optimizer, method)


def keep(member, model, optimizer, method):
    return rk.Keeper(model, optimizer, method, example=member.example(), graph=graph_of(member), seed=3)


def everything(model, optimizer):
    return bits(model) | memory(model, optimizer)


def test_methods_are_found():
    assert {"l2", "l2_init", "parseval", "spectral", "weight_clip", "hare_tortoise"} <= set(PER_STEP)


@pytest.mark.parametrize("key", PER_STEP)
def test_card_is_complete_and_runs(key):
    check_card(rk.method(key))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("key", PER_STEP)
def test_identity_settings_change_nothing(key, name):
    member = ZOO[name]
    cls = settings_class(key)
    plain, its_optimizer, _ = set_up(member)
    model, optimizer, keeper = set_up(member, cls(**cls.identity))
    train(plain, its_optimizer, None, member.example(), 3)
    train(model, optimizer, keeper, member.example(), 3)
    same(everything(plain, its_optimizer), everything(model, optimizer), f"identity settings of {key} changed")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("key", PER_STEP)
def test_resumed_run_is_bit_equal(key, name):
    member = ZOO[name]
    plain, its_optimizer, _ = set_up(member)
    train(plain, its_optimizer, None, member.example(), 6)
    model, optimizer, keeper = set_up(member, lively(key))
    train(model, optimizer, keeper, member.example(), 3)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), keeper.state_dict()], file)
    train(model, optimizer, keeper, member.example(), 3)
    assert any(not torch.equal(p, q) for p, q in zip(plain.parameters(), model.parameters(), strict=True)), (
        f"{key} does nothing here, so this test proves nothing"
    )

    file.seek(0)
    states = torch.load(file, weights_only=True)
    second, its_optimizer, _ = set_up(member)
    for part, state in zip((second, its_optimizer), states, strict=False):
        part.load_state_dict(state)
    its_keeper = keep(member, second, its_optimizer, lively(key))  # begins on weights that are not the first ones
    its_keeper.load_state_dict(states[2])
    assert its_keeper.steps == 3
    train(second, its_optimizer, its_keeper, member.example(), 3)
    same(everything(model, optimizer), everything(second, its_optimizer), f"{key} went on differently:")
    ours, theirs = (pytree.tree_leaves(one.state_dict()) for one in (keeper, its_keeper))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b) if torch.is_tensor(a) else a == b


@pytest.mark.parametrize("key", PER_STEP)
def test_accumulated_half_batches_are_one_step(key):
    member = ZOO["mlp"]
    batch = member.example().double()
    results = []
    for parts in (1, 2):
        model = member.build().double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        keeper = keep(member, model, optimizer, lively(key))
        for _ in range(4):
            optimizer.zero_grad()
            for part in batch.chunk(parts):
                ((loss_of(model, part) + keeper.penalty()) / parts).backward()
            optimizer.step()
            keeper.step()
        assert keeper.steps == 4
        results.append(bits(model))
    for name, tensor in results[0].items():
        assert torch.allclose(tensor, results[1][name], rtol=1e-9, atol=1e-11), f"{name} depends on the accumulation"


@pytest.mark.parametrize("key", PER_STEP)
def test_global_generator_is_not_touched(key):
    member = ZOO["mlp"]
    results = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        model, optimizer, keeper = set_up(member, lively(key))
        train(model, optimizer, keeper, member.example(), 3)
        keeper.load_state_dict(keeper.state_dict())
        keeper.close()
        assert torch.equal(before, torch.get_rng_state())
        results.append(bits(model))
    same(results[0], results[1], "differs between two runs with one seed:")


@pytest.mark.parametrize("key", PER_STEP)
def test_works_without_an_example_or_says_so(key):
    member = ZOO["mlp"]
    model = member.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if "example" in settings_class(key).card.needs:
        with pytest.raises(rk.RekindleError, match="example"):
            rk.Keeper(model, optimizer, lively(key))
        return
    keeper = rk.Keeper(model, optimizer, lively(key))
    train(model, optimizer, keeper, member.example(), 2)
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize("key", PER_STEP)
def test_frozen_parameters_stay(key):
    member = ZOO["cnn_bn"]
    model = member.build()
    frozen = [p.requires_grad_(False) for p in list(model.parameters())[::2]]
    before = [p.clone() for p in frozen]
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    train(model, optimizer, keep(member, model, optimizer, lively(key)), member.example(), 2)
    assert all(torch.equal(p, q) for p, q in zip(frozen, before, strict=True))


@pytest.mark.parametrize("key", PER_STEP)
def test_every_wrong_setting_is_refused(key):
    cls = settings_class(key)
    assert cls() == cls()
    for field in dataclasses.fields(cls):
        with pytest.raises(SettingsError, match=field.name):
            cls(**{field.name: object()})
    with pytest.raises(SettingsError, match="no_such_setting"):
        cls(no_such_setting=1)
    with pytest.raises(SettingsError):
        rk.method(f"{key}:no_such_setting=1")
