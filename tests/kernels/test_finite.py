"""Finite or not, against a look at every value."""

import pytest
import torch

from rekindle.kernels.finite import finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_value_anywhere_is_found(dtype, bad):
    values = torch.linspace(-3, 3, 12).to(dtype).reshape(3, 4)
    assert finite(values)
    for position in range(12):
        spoiled = values.clone()
        spoiled.view(-1)[position] = bad
        assert not finite(spoiled) and not torch.isfinite(spoiled).all()


def test_extreme_but_finite_values_empty_tensors_and_parameters():
    largest = torch.finfo(torch.float32).max
    assert finite(torch.tensor([largest, -largest, 0.0]))
    assert finite(torch.empty(0, 3))
    assert finite(torch.nn.Parameter(torch.ones(2)))
