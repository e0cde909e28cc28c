"""The Dirac weight against `torch.nn.init.dirac_`."""

import pytest
import torch
from torch import nn

from rekindle.kernels.dirac import add_dirac


def as_matrices(weight, groups):
    """[groups * out, in, kernel...] as [groups * positions, out, in], groups slowest."""
    out, in_ = weight.shape[0] // groups, weight.shape[1]
    parts = weight.reshape(groups, out, in_, -1)
    return parts.permute(0, 3, 1, 2).reshape(-1, out, in_)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [(1,), (4,), (3, 3), (2, 5), (3, 1, 2)])
@pytest.mark.parametrize(("out", "in_"), [(4, 4), (6, 2), (2, 5)])
def test_it_is_what_torch_draws(groups, kernel, out, in_):
    weight = nn.init.dirac_(torch.empty(groups * out, in_, *kernel), groups)
    empty = torch.zeros(groups * torch.Size(kernel).numel(), out, in_)
    assert torch.equal(add_dirac(empty, 1.0, groups, kernel), as_matrices(weight, groups))


def test_it_is_added_and_the_argument_is_left_alone():
    matrices = torch.randn(1, 3, 5)
    before = matrices.clone()
    assert torch.equal(add_dirac(matrices, 0.25), before + 0.25 * torch.eye(3, 5))
    assert torch.equal(matrices, before)
