"""A Keeper that is not called as it must be says so, once."""

import warnings

import pytest
import torch

import rekindle as rk
from rekindle.errors import KeeperWarning
from rekindle.keeper.calls import PATIENCE
from tests.keeper.keeping import EXAMPLE, batch, network


def kept(methods="redo"):
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    return model, optimizer, rk.Keeper(model, optimizer, methods, example=EXAMPLE)


def step(model, optimizer, keeper=None, *, penalty=True):
    inputs, targets = batch(0)
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    if keeper is not None and penalty:
        loss = loss + keeper.penalty()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if keeper is not None:
        keeper.step()


@pytest.mark.parametrize("methods", ["redo", "l2_init", "soft_rescale", [], ["fire"]])
def test_a_loop_as_it_should_be_is_silent(methods):
    model, optimizer, keeper = kept(methods)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            step(model, optimizer, keeper)
        keeper.close()
    assert keeper.steps == 3


def test_a_step_that_is_never_called():
    model, optimizer, keeper = kept()
    step(model, optimizer)
    with pytest.warns(KeeperWarning, match="never called"):
        keeper.close()
    model, optimizer, keeper = kept()
    with pytest.warns(KeeperWarning, match=f"not called for {PATIENCE} steps") as heard:
        for _ in range(2 * PATIENCE + 1):
            step(model, optimizer)
    assert len(heard) == 1


def test_a_penalty_that_is_never_asked_for():
    model, optimizer, keeper = kept("l2_init")
    with pytest.warns(KeeperWarning, match="penalty.. was not asked for") as heard:
        for _ in range(3):
            step(model, optimizer, keeper, penalty=False)
    assert len(heard) == 1


def test_a_new_optimizer_is_noticed_and_can_be_bound():
    model, optimizer, keeper = kept("soft_rescale")
    step(model, optimizer, keeper)
    second = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with pytest.warns(KeeperWarning, match="keeper.rebind"):
        step(model, second, keeper)
    keeper.rebind(second)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(model, second, keeper)
    assert not optimizer._optimizer_step_post_hooks


def test_after_rebind_the_state_of_the_new_one_is_cleared():
    model, optimizer, keeper = kept("cbp:rate=0.2,maturity=0")
    step(model, optimizer, keeper)
    second = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    keeper.rebind(second)
    keeper.records.clear()
    step(model, second, keeper)
    (record,) = keeper.records
    units = record.units["0"]
    buffer = second.state[model[2].weight]["momentum_buffer"]
    assert not buffer[:, list(units)].any() and buffer.any()
    assert "SGD" in record.notices[0]


def test_methods_that_follow_the_learning_rate_follow_the_new_optimizer():
    model, optimizer, keeper = kept("soft_rescale:rebase_on_drop=0.5")
    for _ in range(2):
        step(model, optimizer, keeper)
    second = torch.optim.SGD(model.parameters(), lr=1.0)
    keeper.rebind(second)
    step(model, second, keeper)
    norm = float(model[0].weight.norm())
    second.param_groups[0]["lr"] = 1e-9
    step(model, second, keeper)  # the drop of the second one's rate makes this the new start
    for _ in range(50):
        step(model, second, keeper)
    assert float(model[0].weight.norm()) == pytest.approx(norm, rel=1e-3)


def test_an_optimizer_of_another_model_is_not_bound():
    _, _, keeper = kept()
    with pytest.raises(rk.RekindleError, match="holds none of them"):
        keeper.rebind(torch.optim.SGD(network().parameters(), lr=1.0))


def test_a_step_that_the_scaler_skipped():
    """GradScaler skips steps with infinite gradients; a loop that says so is silent and nothing is counted."""
    model, optimizer, keeper = kept("redo:period=1,threshold=0.99")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", KeeperWarning)
        for number in range(4):
            inputs, targets = batch(number)
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            scaler.scale(loss * (float("inf") if number == 2 else 1)).backward()
            before, scale = [p.clone() for p in model.parameters()], scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            skipped = scaler.get_scale() < scale
            told = keeper.step(skipped=skipped)
            assert skipped == (number == 2)
            if skipped:
                assert not told and all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert keeper.steps == 3


def test_a_skipped_step_that_is_not_told_is_noticed():
    model, optimizer, keeper = kept()
    step(model, optimizer, keeper)
    with pytest.warns(KeeperWarning, match="skipped=True"):
        keeper.step()


def test_the_hook_keeps_no_keeper_alive_and_goes_with_it():
    import gc
    import weakref

    _, optimizer, keeper = kept()
    gone = weakref.ref(keeper)
    assert len(optimizer._optimizer_step_post_hooks) == 1
    keeper.close()
    assert not optimizer._optimizer_step_post_hooks
    del keeper
    gc.collect()
    assert gone() is None
