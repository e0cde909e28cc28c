"""The Keeper used wrongly: every mistake is noticed, and leaves nothing behind."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam

import rekindle as rk
from rekindle.errors import EditError, KeeperError, PlanError, SettingsError
from rekindle.testing.aged import hooks
from tests.keeper.keeping import EXAMPLE, METHODS, batch, network, train


def made(methods="redo:period=1", optimizer=None, **given) -> tuple[nn.Module, rk.Keeper]:
    model = network()
    return model, rk.Keeper(model, optimizer, methods, **{"example": EXAMPLE, **given})


@pytest.mark.parametrize("call", ["penalty", "step", "boundary", "rebase", "state_dict"])
def test_not_before_attach_and_not_after_close(call):
    keeper = rk.Keeper(methods="l2")
    with pytest.raises(KeeperError, match="attach"):
        getattr(keeper, call)()
    model = network()
    keeper.attach(model)
    getattr(keeper, call)()
    keeper.close()
    keeper.close()
    with pytest.raises(KeeperError, match="make a new Keeper"):
        getattr(keeper, call)()
    with pytest.raises(KeeperError, match="not attached yet"):
        keeper.attach(model)


def test_attached_once_only():
    model, keeper = made()
    with pytest.raises(KeeperError, match="works on a model"):
        keeper.attach(model)
    with pytest.raises(KeeperError, match="without a model"):
        rk.Keeper(methods="l2").load_state_dict({})
    keeper.close()
    with pytest.raises(KeeperError, match="closed"):
        keeper.load_state_dict({})


def replace_parameter(model):
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())


def replace_module(model):
    model[4] = nn.Linear(10, 4)


def add_module(model):
    model.append(nn.Linear(4, 4))


def load_with_assign(model):
    model.load_state_dict(network(1).state_dict(), assign=True)


def make_double(model):
    model.double()


def move_and_replace(model):
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.to(torch.bfloat16).to(torch.float32)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


def freeze(model):
    model[0].requires_grad_(False)


CHANGES = [freeze, replace_parameter, replace_module, add_module, load_with_assign, make_double, move_and_replace]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_swapped_model_is_noticed(change):
    model, keeper = made(["l2", "redo:period=1"])
    change(model)
    for call in (keeper.penalty, keeper.step, keeper.boundary):
        with pytest.raises(KeeperError, match="replaced, moved to another"):
            call()
    keeper.close()


def test_what_keeps_the_parameters_is_not_misuse():
    model, keeper = made("l2")
    model.load_state_dict(network(1).state_dict())
    model.to(torch.float32).eval().train()
    assert keeper.penalty() > 0
    keeper.step()
    assert keeper.steps == 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"methods": ["l2:strength=0.5"]}, "L2"),
        ({"methods": []}, "methods"),
        ({"seed": 3}, "seed 3"),
    ],
)
def test_a_state_of_another_keeper(change, word):
    _, keeper = made("redo:period=1")
    state = keeper.state_dict()
    model = network()
    other = rk.Keeper(model, None, **{"methods": "redo:period=1", "example": EXAMPLE, **change})
    with pytest.raises(KeeperError, match=word):
        other.load_state_dict(state)
    with pytest.raises(KeeperError, match="without boundaries, methods"):
        other.load_state_dict(model.state_dict())


def test_recyclers_ask_for_an_example():
    with pytest.raises(KeeperError, match="pass example="):
        made("redo", example=None)


def test_optimizers_that_train_something_else():
    with pytest.raises(KeeperError, match="holds none of them"):
        made(optimizer=Adam(network().parameters()))
    with pytest.raises(KeeperError, match="got: a Linear"):
        made(optimizer=[nn.Linear(2, 2)])
    model = network()
    rk.Keeper(model, Adam(model[4].parameters()), "l2")  # a part is enough: the rest may be frozen or trained elsewhere


@pytest.mark.parametrize(
    ("methods", "error", "word"),
    [
        ("rado", SettingsError, "a method: "),
        ("redo:periods=3", SettingsError, "settings of Redo"),
        ([object()], SettingsError, "rekindle list"),
        ([None], SettingsError, "got: None"),
        ([rk.Redo], SettingsError, "the class Redo"),
        ("l2+muon", KeeperError, "rk.muon"),
    ],
)
def test_what_is_no_method_for_a_keeper(methods, error, word):
    with pytest.raises(error) as caught:
        made(methods)
    assert word in str(caught.value) and all((caught.value.expected, caught.value.got, caught.value.fix))


def test_per_step_methods_are_not_for_boundaries_and_steps_need_passes():
    model, keeper = made("redo:period=1")
    with pytest.raises(PlanError, match="one-shot"):
        keeper.boundary(methods="redo")
    with pytest.raises(PlanError, match="forward pass with gradients"):
        keeper.step()


def test_no_hook_stays_when_a_method_cannot_start():
    class Broken:
        key, kind, card, observes = "broken", "recycler", rk.Redo.card, ("magnitude",)

        def init(self, context):
            raise EditError(expected="a", got="b", fix="c")

    model = network()
    plain = hooks(model)
    keeper = rk.Keeper(methods=[Broken()], example=EXAMPLE)
    with pytest.raises(EditError):
        keeper.attach(model)
    assert hooks(model) == plain
    with pytest.raises(KeeperError, match="without a model"):
        keeper.step()


def test_no_hook_stays_after_close():
    model = network()
    plain = hooks(model)
    keeper = rk.Keeper(model, None, METHODS, example=EXAMPLE)
    assert hooks(model) != plain
    keeper.close()
    assert hooks(model) == plain


def test_a_copy_of_the_model_is_not_watched():
    ends = []
    for copied in (False, True):
        model = network()
        optimizer = SGD(model.parameters(), 0.1)
        keeper = rk.Keeper(model, optimizer, "redo:period=1,threshold=0.4", example=EXAMPLE)
        if copied:
            copy.deepcopy(model)(100 * torch.ones(500, 8))
        train(model, optimizer, keeper, 1)
        ends.append(keeper.recycled)
    assert ends[0] == ends[1] and ends[0]


def test_draws_do_not_touch_the_global_generator():
    model, keeper = made("redo:period=1,threshold=0.9")
    torch.manual_seed(3)
    state = torch.get_rng_state()
    model(batch(0)[0]).sum().backward()
    keeper.step()
    assert keeper.recycled and torch.equal(torch.get_rng_state(), state)


def test_a_model_that_cannot_be_computed_with_is_refused():
    with pytest.raises(KeeperError, match="weight on the meta device"):
        rk.Keeper(nn.Linear(2, 2, device="meta"), None, "l2")
    with pytest.raises(KeeperError, match="none; weight: complex64"):
        rk.Keeper(nn.Linear(2, 2, dtype=torch.complex64), None, "l2")
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, dtype=torch.complex64))
    keeper = rk.Keeper(mixed, None, "l2")
    assert set(keeper.skipped) == {"1.weight", "1.bias"}
    half = keeper.penalty() * 2 / 1e-4
    assert float(half) == pytest.approx(sum(float(p.square().sum()) for p in mixed[0].parameters()), rel=1e-4)
