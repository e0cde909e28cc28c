"""Tensors from a state, fitted to those that they stand for."""

import pytest
import torch
from torch import nn

from rekindle.errors import KeeperError
from rekindle.methods.per_step._saved import fitting


def test_precision_and_names_of_the_tensors_that_they_stand_for():
    state = {"a": torch.arange(3.0), "b": torch.ones(2), "more": torch.zeros(1)}
    found = fitting(state, {"a": torch.zeros(3, dtype=torch.float64), "b": torch.zeros(2)}, "an average")
    assert list(found) == ["a", "b"] and found["a"].dtype == torch.float64 and found["a"].tolist() == [0, 1, 2]
    assert found["b"] is not None and found["b"].data_ptr() == state["b"].data_ptr(), "nothing is copied"


def test_what_shares_memory_with_the_live_tensor_is_copied():
    model = nn.Linear(2, 2)
    found = fitting(model.state_dict(), dict(model.named_parameters()), "a start")
    before = found["weight"].clone()
    with torch.no_grad():
        model.weight.add_(1)
    assert torch.equal(found["weight"], before) and not found["weight"].requires_grad


@pytest.mark.parametrize(
    ("state", "got"),
    [({"a": torch.ones(2)}, r"shape \(2,\) \(1 of 1"), ({}, r"none \(1 of 1")],
)
def test_what_does_not_fit_is_told(state, got):
    with pytest.raises(KeeperError, match=rf"(?s)an average of shape \(3,\) for a.*got: {got}"):
        fitting(state, {"a": torch.zeros(3)}, "an average")


def test_numbers_of_another_kind_are_refused():
    with pytest.raises(KeeperError, match="a start of plain floats for a"):
        fitting({"a": torch.ones(2, dtype=torch.int8)}, {"a": torch.ones(2)}, "a start")
