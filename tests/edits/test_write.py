"""The only writer: the way back is noted before each write."""

import torch
from torch import nn

from rekindle.edits.write import Journal, overwrite


def test_writes_are_taken_back_last_first():
    tensor, held = nn.Parameter(torch.ones(3)), {"a": 1}
    journal = Journal()
    journal.put(tensor, torch.full((3,), 2.0))
    journal.put(tensor, torch.full((3,), 3.0))
    journal.set(held, "a", 2)
    journal.set(held, "b", 3)
    journal.drop(held, "a")
    assert tensor[0] == 3 and held == {"b": 3}
    journal.roll_back()
    assert torch.equal(tensor, torch.ones(3)) and held == {"a": 1}
    assert tensor.is_leaf and tensor.requires_grad


def test_a_way_back_without_its_write_does_no_harm():
    class Stubborn(dict):
        def __setitem__(self, key, value):
            raise KeyboardInterrupt

    held = Stubborn(a=1)
    journal = Journal()
    try:
        journal.set(held, "b", 2)
    except KeyboardInterrupt:
        journal.roll_back()
    assert held == {"a": 1}


def test_a_roll_back_that_is_interrupted_can_be_called_again():
    tensor, calls = torch.zeros(1), []

    def tired():
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt

    journal = Journal()
    journal.put(tensor, torch.ones(1))
    journal.note(tired)
    try:
        journal.roll_back()
    except KeyboardInterrupt:
        journal.roll_back()
    assert tensor == 0 and len(calls) == 2


def test_what_is_written_after_the_seal_is_counted():
    tensors = [torch.zeros(2), torch.zeros(2)]
    journal = Journal()
    for tensor in tensors:
        journal.put(tensor, torch.ones(2))
    journal.seal()
    assert journal.written_since() == (0, 2)
    overwrite(tensors[0], torch.zeros(2))
    assert journal.written_since() == (1, 2)
