"""The check by interrupts can fail, and says where."""

import pytest
import torch
from torch import nn

from rekindle.edits import write
from rekindle.testing.interrupts import Lines, check_interrupts, difference, moments_to_raise, picture


def made(treat):
    def make():
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, optimizer, lambda: treat(model)

    return make


def halfway(model):
    """Two writes of ours, each of several lines, with no way back."""
    write.overwrite(model.weight, model.weight / 2)
    write.overwrite(model.bias, model.bias / 2)
    return "record"


def test_what_is_left_half_is_told_with_its_line():
    with pytest.raises(AssertionError, match=r"edits/write.py:\d+, time 2: /tensors/weight"):
        check_interrupts(made(halfway))


def test_a_treatment_that_is_whole_passes():
    def taken_back(model):
        journal = write.Journal()
        try:
            journal.put(model.weight, model.weight / 2)
            journal.put(model.bias, model.bias / 2)
            return journal
        except BaseException:
            journal.roll_back()
            raise

    assert check_interrupts(made(taken_back)) > 5


def test_an_error_of_another_kind_is_told():
    def swallows(model):
        try:
            write.overwrite(model.weight, model.weight)
        except BaseException as error:
            raise ValueError("something else") from error

    with pytest.raises(AssertionError, match="ValueError: something else"):
        check_interrupts(made(swallows))


def test_lines_are_counted_and_those_after_the_first_write_marked():
    lines = Lines()
    tensor = torch.zeros(2)

    def work():
        write.Journal()
        journal = write.Journal()
        journal.put(tensor, tensor)
        journal.put(tensor, tensor)

    lines.run(work)
    assert lines.writing and lines.writing <= set(lines.counts) and max(lines.counts.values()) == 2
    every, fewer = (list(moments_to_raise(lines, thorough=each)) for each in (True, False))
    assert set(fewer) < set(every) and {time for _, time in every} == {1, 2}


def test_a_picture_has_values_structure_state_and_modes():
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.Adam(model.parameters())
    before = picture(model, optimizer)
    assert difference(before, picture(model, optimizer)) == ""
    changes = {
        "tensors": lambda: model[0].weight.data.add_(1),
        "flags": lambda: model[0].bias.requires_grad_(False),
        "modules": lambda: model.eval(),
        "hooks": lambda: model.register_forward_hook(lambda *_: None),
        "counters": lambda: optimizer.param_groups[0].update(lr=3.0),
        "state": lambda: optimizer.state.update({model[0].weight: {"step": torch.tensor(1.0)}}),
        "generator": lambda: torch.manual_seed(99),
    }
    for part, change in changes.items():
        before = picture(model, optimizer)
        change()
        assert part in difference(before, picture(model, optimizer))
