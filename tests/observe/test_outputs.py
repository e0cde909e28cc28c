"""What the outputs of submodules depend on, without a trace left behind."""

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.observe.outputs import upstream_of
from rekindle.testing.aged import bits, hooks, same


class Residual(nn.Module):
    """In-place activations, a branch that is added, and a parallel one."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4, affine=False)
        self.act = nn.ReLU(inplace=True)
        self.branch = nn.Linear(4, 4)
        self.side = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 4))
        self.join = nn.Identity()
        self.gain = nn.Parameter(torch.ones(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        h = self.act(self.norm(self.stem(x)))
        side = self.side(x)
        return self.head(self.join(h + self.branch(h) * self.gain) + side)


def test_what_an_output_depends_on():
    model, x = Residual(), torch.randn(8, 3)
    assert upstream_of(model, ["stem"], x)[0] == {"stem.weight", "stem.bias"}
    parameters, modules = upstream_of(model, ["join"], x)
    assert parameters == {"stem.weight", "stem.bias", "branch.weight", "branch.bias", "gain"}
    assert "norm" in modules and "side.0" not in modules
    assert upstream_of(model, ["side", "stem"], x)[0] == {"stem.weight", "stem.bias", "side.1.weight", "side.1.bias"}
    frozen = Residual().requires_grad_(False)
    assert upstream_of(frozen, ["join"], x)[0] == parameters


def test_nothing_is_left_behind():
    model, x = Residual(), torch.randn(8, 3)
    model.side.eval()
    before, modes = bits(model), [m.training for m in model.modules()]
    upstream_of(model, ["join"], x)
    with pytest.raises(PlanError, match="as the model takes it"):
        upstream_of(model, ["join"], torch.randn(8, 5))
    same(before, bits(model), "written:")
    assert modes == [m.training for m in model.modules()] and not any(hooks(model))
    assert all(p.grad is None for p in model.parameters())


def test_a_module_that_is_not_called_is_refused_by_name():
    with pytest.raises(PlanError, match="'spare' that the model calls"):
        model = Residual()
        model.spare = nn.Linear(1, 1)
        upstream_of(model, ["spare"], torch.randn(8, 3))
