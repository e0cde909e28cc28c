"""Elements that began again in the middle of a tensor: corrected as long as needed, then forgotten."""

import copy

import pytest
import torch
from torch import nn, optim

from rekindle.edits import renewal
from rekindle.edits.write import Journal


def trained(steps, **given):
    parameter = nn.Parameter(torch.zeros(3, 2))
    optimizer = optim.Adam([parameter], lr=1e-3, **given)
    for _ in range(steps):
        parameter.grad = torch.ones(3, 2)
        optimizer.step()
    return parameter, optimizer


def begin_again(parameter, optimizer, row):
    """Do by hand what a transaction does for one row."""
    journal = Journal()
    stale = torch.zeros(3, 2, dtype=torch.bool)
    stale[row] = True
    for key in ("exp_avg", "exp_avg_sq"):
        journal.put(optimizer.state[parameter][key], optimizer.state[parameter][key].masked_fill(stale, 0))
    renewal.renew(journal, optimizer, parameter, stale)
    return journal


def hooks(optimizer):
    return len(optimizer._optimizer_step_post_hooks)


def step(parameter, optimizer):
    before = parameter.detach().clone()
    parameter.grad = torch.ones(3, 2)
    optimizer.step()
    return (before - parameter.detach()) / 1e-3


def test_the_hook_goes_when_the_last_element_is_old():
    parameter, optimizer = trained(50, betas=(0.9, 0.95))
    begin_again(parameter, optimizer, 1)
    assert hooks(optimizer) == 1
    for _ in range(60):
        torch.testing.assert_close(step(parameter, optimizer), torch.ones(3, 2), rtol=0.11, atol=0)
    assert hooks(optimizer) == 0 and not renewal.state_of(optimizer, {parameter: "w"})


def test_several_cohorts_have_their_own_ages():
    parameter, optimizer = trained(500)
    begin_again(parameter, optimizer, 1)
    for _ in range(7):
        step(parameter, optimizer)
    begin_again(parameter, optimizer, 2)
    begin_again(parameter, optimizer, 1)  # once more: it is young once
    assert hooks(optimizer) == 1
    for _ in range(20):
        torch.testing.assert_close(step(parameter, optimizer), torch.ones(3, 2), rtol=1e-3, atol=0)
    (saved,) = renewal.state_of(optimizer, {parameter: "w"}).values()
    assert saved["born"].tolist() == [507.0] * 4


def test_a_roll_back_takes_the_hook_out():
    parameter, optimizer = trained(20)
    kept = copy.deepcopy(optimizer.state_dict())
    journal = begin_again(parameter, optimizer, 0)
    journal.roll_back()
    assert hooks(optimizer) == 0
    assert torch.equal(optimizer.state[parameter]["exp_avg"], kept["state"][0]["exp_avg"])


def test_ages_are_saved_and_loaded():
    parameter, optimizer = trained(500)
    begin_again(parameter, optimizer, 1)
    step(parameter, optimizer)
    again, other = trained(1)
    with torch.no_grad():
        again.copy_(parameter)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    renewal.load(other, {"w": again}, renewal.state_of(optimizer, {parameter: "w"}))
    for _ in range(5):
        assert torch.equal(step(parameter, optimizer), step(again, other))
    assert torch.equal(parameter, again)


def test_state_that_was_cleared_since_has_another_past():
    parameter, optimizer = trained(500)
    begin_again(parameter, optimizer, 1)
    optimizer.state.clear()
    torch.testing.assert_close(step(parameter, optimizer), torch.ones(3, 2), rtol=1e-3, atol=0)
    assert hooks(optimizer) == 0


def test_elements_whose_state_was_cleared_are_not_saved():
    parameter, optimizer = trained(1)
    begin_again(parameter, optimizer, 1)
    assert renewal.state_of(optimizer, {parameter: "w"})
    optimizer.state.clear()  # its counter begins again, and is where that of the elements was
    assert not renewal.state_of(optimizer, {parameter: "w"})


def test_a_step_that_was_not_made_is_not_corrected():
    parameter, optimizer = trained(500)
    begin_again(parameter, optimizer, 1)
    before = parameter.detach().clone()
    parameter.grad = None
    optimizer.step()
    assert torch.equal(parameter, before) and hooks(optimizer) == 1


def test_a_step_that_the_optimizer_itself_skips_is_not_corrected_again():
    """As GradScaler has it with fused optimizers: they are told of infinite gradients and make no step."""
    parameter, optimizer = trained(500, fused=True)
    begin_again(parameter, optimizer, 1)
    for _ in range(3):
        step(parameter, optimizer)
    before = parameter.detach().clone()
    optimizer.found_inf, optimizer.grad_scale = torch.tensor(1.0), None
    step(parameter, optimizer)
    assert torch.equal(parameter, before)
    del optimizer.found_inf, optimizer.grad_scale
    torch.testing.assert_close(step(parameter, optimizer), torch.ones(3, 2), rtol=1e-3, atol=0)


def test_a_copy_and_a_saved_state_have_no_hook():
    parameter, optimizer = trained(500)
    begin_again(parameter, optimizer, 1)
    assert hooks(copy.deepcopy(optimizer)) == 0
    assert set(optimizer.state_dict()) == {"state", "param_groups"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions(dtype):
    parameter = nn.Parameter(torch.zeros(3, 2, dtype=dtype))
    optimizer = optim.Adam([parameter], lr=1e-1)
    for _ in range(50):
        parameter.grad = torch.ones(3, 2, dtype=dtype)
        optimizer.step()
    begin_again(parameter, optimizer, 1)
    before = parameter.detach().clone()
    optimizer.step()
    torch.testing.assert_close((before - parameter.detach())[1].float(), torch.full((2,), 0.1), rtol=0.1, atol=0)


def test_a_checkpoint_that_is_restored_is_not_corrected():
    """Its elements are old, also where the step counters fit."""
    for steps in (0, 3):
        parameter, optimizer = trained(100)
        good = copy.deepcopy((parameter.detach(), optimizer.state_dict()))
        begin_again(parameter, optimizer, 1)
        for _ in range(steps):
            step(parameter, optimizer)
        undisturbed, other = trained(100)
        with torch.no_grad():
            parameter.copy_(good[0])
        optimizer.load_state_dict(good[1])
        for _ in range(5):
            assert torch.equal(step(parameter, optimizer), step(undisturbed, other))
        assert hooks(optimizer) == 0


def test_gradients_that_a_hook_clears_do_not_turn_it_off():
    parameter, optimizer = trained(500)
    optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad())
    begin_again(parameter, optimizer, 1)
    for _ in range(10):
        torch.testing.assert_close(step(parameter, optimizer), torch.ones(3, 2), rtol=1e-3, atol=0)


def test_the_hook_can_go_while_others_follow():
    parameter, optimizer = trained(50, betas=(0.9, 0.95))
    begin_again(parameter, optimizer, 1)
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    for _ in range(60):
        step(parameter, optimizer)
    assert len(seen) == 60 and hooks(optimizer) == 1 and not optimizer._optimizer_step_pre_hooks
