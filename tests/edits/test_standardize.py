"""A fixed normalization put before or after a module: by its formula, updated, and taken back at any moment."""

import pytest
import torch
from torch import nn

from rekindle.edits.inserted import BUFFERS, is_standardized
from rekindle.edits.standardize import standardize
from rekindle.edits.surgery import Standardize
from rekindle.edits.write import Journal, count_changed
from rekindle.errors import PlanError

SIDES = ("before", "after")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def by_hand(model, x, side):
    h = model[0](x).relu()
    if side == "before":
        return nn.functional.linear((h - 0.5) / 2.0, model[2].weight, model[2].bias)
    return (nn.functional.linear(h, model[2].weight, model[2].bias) - 0.5) / 2.0


@pytest.mark.parametrize("side", SIDES)
def test_by_its_formula_and_back(side):
    model, x, journal = net(), torch.randn(5, 3), Journal()
    plain, names = model(x), list(model.state_dict())
    standardize(model[2], Standardize(0.5, 2.0, side), model, journal)
    torch.testing.assert_close(model(x), by_hand(net(), x, side))
    assert set(model.state_dict()) - set(names) == {f"2.{name}" for name in BUFFERS[side]}
    assert [is_standardized(model[2], other) for other in SIDES] == [side == other for other in SIDES]
    journal.roll_back()
    assert torch.equal(model(x), plain) and list(model.state_dict()) == names
    assert not model[2]._forward_hooks and not model[2]._forward_pre_hooks


@pytest.mark.parametrize("side", SIDES)
def test_a_second_one_updates_the_first_and_both_sides_go_together(side):
    model, first, second = net(), Journal(), Journal()
    standardize(model[2], Standardize(1.0, 2.0, side), model, first)
    standardize(model[2], Standardize(3.0, 4.0, side), model, second)
    values = [getattr(model[2], name) for name in BUFFERS[side]]
    assert len(model[2]._forward_hooks) + len(model[2]._forward_pre_hooks) == 1
    assert [float(value) for value in values] == [3.0, 4.0]
    second.roll_back()
    assert [float(value) for value in values] == [1.0, 2.0]
    other = "after" if side == "before" else "before"
    standardize(model[2], Standardize(5.0, 6.0, other), model, second)
    assert is_standardized(model[2], side) and is_standardized(model[2], other)


def test_whoever_looks_at_the_input_sees_what_is_read():
    model, x, seen = net(), torch.randn(5, 3), []
    model[2].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    standardize(model[2], Standardize(0.5, 2.0, "before"), model, Journal())
    model(x)
    torch.testing.assert_close(seen[0], (model[0](x).relu() - 0.5) / 2.0)


def test_the_buffers_are_watched():
    model, journal = net(), Journal()
    standardize(model[2], Standardize(1.0, 2.0, "before"), model, journal)
    journal.seal()
    assert len(journal.left()) == 2 and count_changed(journal.left()) == 0
    model[2].rekindle_input_std.fill_(3.0)
    assert count_changed(journal.left()) == 1


def test_type_and_device_are_those_of_the_parameters():
    model = net().to(torch.float64)
    standardize(model[1], Standardize(1.0, 2.0), model, Journal())  # a module without parameters: the model's
    assert model[1].rekindle_mean.dtype == torch.float64
    alone = nn.ReLU()
    standardize(alone, Standardize(1.0, 2.0), alone, Journal())
    assert alone.rekindle_mean.dtype == torch.float32


class Interrupted(Journal):
    """Is stopped when a given number of ways back have been noted: after the note, before the change."""

    def __init__(self, left):
        super().__init__()
        self.left = left

    def note(self, back):
        super().note(back)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("steps", range(1, 5))
def test_an_interrupt_at_any_step_leaves_the_model_as_it_was(side, there, steps):
    model, x, journal = net(), torch.randn(5, 3), Interrupted(steps)
    if there:
        standardize(model[2], Standardize(1.0, 2.0, side), model, Journal())
    before, state = model(x), {name: value.clone() for name, value in model.state_dict().items()}
    if there and steps > 2:  # an update has two steps
        standardize(model[2], Standardize(5.0, 6.0, side), model, journal)
    else:
        with pytest.raises(KeyboardInterrupt):
            standardize(model[2], Standardize(5.0, 6.0, side), model, journal)
    journal.roll_back()
    assert torch.equal(model(x), before) and model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert is_standardized(model[2], side) == there


class InterruptedAtTheEnd(Journal):
    """Is stopped when everything has been put in."""

    def watch(self, tensor):
        raise KeyboardInterrupt


@pytest.mark.parametrize("side", SIDES)
def test_an_interrupt_after_the_last_change_is_taken_back_too(side):
    model, x, journal = net(), torch.randn(5, 3), InterruptedAtTheEnd()
    before = model(x)
    with pytest.raises(KeyboardInterrupt):
        standardize(model[2], Standardize(5.0, 6.0, side), model, journal)
    assert is_standardized(model[2], side)
    journal.roll_back()
    assert torch.equal(model(x), before) and not is_standardized(model[2], side)


def test_a_module_that_is_given_its_input_by_keyword_is_refused_when_called():
    model = net()
    standardize(model[2], Standardize(1.0, 2.0, "before"), model, Journal())
    with pytest.raises(PlanError, match="no positional argument"):
        model[2](input=torch.randn(1, 4))
