"""One process sees what it saw; several are in tests/keeper/test_processes.py."""

import pytest
import torch
import torch.distributed as dist

from rekindle.observe import distributed
from rekindle.observe.distributed import processes, summed


def test_alone_the_values_are_the_same_object():
    values = torch.tensor([1.0, 2.0])
    assert processes() == 1 and summed(values) is values is summed(values, largest=True)


@pytest.mark.parametrize(("largest", "expected"), [(False, dist.ReduceOp.SUM), (True, dist.ReduceOp.MAX)])
def test_together_a_copy_is_reduced_in_one_message(largest, expected, monkeypatch):
    messages = []

    def all_reduce(values, op):
        messages.append(op)
        values.mul_(3)

    monkeypatch.setattr(distributed, "processes", lambda: 3)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    values = torch.tensor([1.0, 2.0])
    assert summed(values, largest=largest).tolist() == [3.0, 6.0]
    assert messages == [expected] and values.tolist() == [1.0, 2.0]
