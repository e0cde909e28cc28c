"""The only writer: the way back is noted before each write."""

import pytest
import torch
from torch import nn

from rekindle.edits.update import Clamp, Multiply, Replace
from rekindle.edits.write import Journal, carry_out, count_changed, digest, overwrite


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
    assert len(journal.left()) == 2 and count_changed(journal.left()) == 0
    overwrite(tensors[0], torch.zeros(2))
    assert count_changed(journal.left()) == 1
    overwrite(tensors[0], torch.ones(2))
    assert count_changed(journal.left()) == 0, "the same values again are no change"


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64]
)
def test_a_digest_sees_writes_that_torch_does_not_count(dtype):
    tensor = torch.zeros(3, 2, dtype=dtype).t()
    before, version = digest(tensor), tensor._version
    tensor.data[1, 1] = 1
    assert tensor._version == version and bool(digest(tensor) != before)
    tensor.data[1, 1] = 0
    assert bool(digest(tensor) == before)


def test_entries_that_were_set_or_dropped_are_counted():
    held, journal = {"a": 1, "b": 2}, Journal()
    journal.set(held, "a", 5)
    journal.drop(held, "b")
    journal.seal()
    assert count_changed(journal.left()) == 0
    held["b"] = 2
    assert count_changed(journal.left()) == 1
    journal.roll_back()
    assert held == {"a": 1, "b": 2}


def test_updates_reach_weights_that_an_optimizer_keeps():
    """y = share z + (1 - share) x, as schedule-free optimizers have it."""
    x, z, share = torch.tensor([3.0, -0.1]), torch.tensor([-5.0, 0.2]), 0.1
    y = share * z + (1 - share) * x
    carry_out(Clamp([y], [1.0]), [(0, z, share)])
    assert z.tolist() == pytest.approx([-1.0, 0.2])
    assert y.tolist() == pytest.approx([share * -1 + (1 - share) * 1.0, share * 0.2 + (1 - share) * -0.1])
    carry_out(Multiply([y], [torch.tensor(2.0)]), [(0, z, share)])
    assert z.tolist() == pytest.approx([-2.0, 0.4])
    carry_out(Replace([y], [torch.tensor([7.0, 8.0])]), [(0, z, share)])
    assert y.tolist() == pytest.approx([7.0, 8.0]) == z.tolist()
