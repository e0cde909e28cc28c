"""Activations on a fine grid, sums and products by the steepest slope of what was looked at."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.graph.lipschitz.oracle import Function, bound_of, steepest

ACTIVATIONS = {
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "hardsigmoid": nn.Hardsigmoid(),
    "hardswish": nn.Hardswish(),
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU(approximate="tanh"),
    "silu": nn.SiLU(),
    "mish": nn.Mish(),
    "selu": nn.SELU(),
    "celu": nn.CELU(2.0),
    "softplus": nn.Softplus(beta=3),
    "softshrink": nn.Softshrink(),
    "log_sigmoid": nn.LogSigmoid(),
    "hardtanh": nn.Hardtanh(-2, 3),
    "elu": nn.ELU(alpha=0.5),
    "elu_steep": nn.ELU(alpha=2.5),
    "leaky": nn.LeakyReLU(0.1),
    "leaky_steep": nn.LeakyReLU(3.0),
    "leaky_negative": nn.LeakyReLU(-2.0),
    "rrelu": nn.RReLU(2.0, 2.0),
    "prelu": nn.PReLU(init=0.25),
    "prelu_steep": nn.PReLU(init=2.5),
    "prelu_negative": nn.PReLU(init=-1.5),
    "erf": Function(torch.erf),
    "threshold": nn.Threshold(0.5, 0.5),
    "times": Function(lambda x: 3 * x),
    "over": Function(lambda x: x / 0.25),
    "twice": Function(lambda x: x + x),
    "more_than_twice": Function(lambda x: torch.add(x, x, alpha=4)),
    "clamp": Function(lambda x: x.clamp(min=-1)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_bound_is_the_steepest_slope(name):
    model = ACTIVATIONS[name].eval()
    x = torch.cat([torch.linspace(-12, 12, 240_001), torch.linspace(-0.01, 0.01, 99)]).double().requires_grad_()
    [slopes] = torch.autograd.grad(model.double()(x).sum(), x)
    steepest_slope = float(slopes.abs().max())
    one = nn.Linear(1, 1, bias=False)
    nn.init.ones_(one.weight)
    for chain in (nn.Sequential(model, one), nn.Sequential(one, model)):  # on the input itself, and on a unit
        bound = bound_of(chain.float(), torch.zeros(1, 1))
        assert steepest_slope <= bound * (1 + 1e-6)
        # Factors below one are not taken off the input, see `graph.lipschitz.steps`.
        assert bound == pytest.approx(max(steepest_slope, float(chain[0] is model)), rel=1e-3)


STEPS = {
    "hardshrink": nn.Hardshrink(),
    "threshold": nn.Threshold(0.5, 0.0),
    "softplus that ends early": nn.Softplus(threshold=0.1),
    "square": Function(torch.square),
    "exp": Function(torch.exp),
    "gate": Function(lambda x: x * x.sigmoid()),
    "glu": nn.GLU(),
    "chosen by the input": Function(lambda x: torch.where(x > 0, x, x + 1)),
    "rounded": Function(torch.round),
    "inverse": Function(lambda x: 1 / x),
    "dropout that is always on": Function(lambda x: F.dropout(x, 0.5, training=True)),
    "whole numbers": Function(lambda x: x.long().float()),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("first", [False, True])
def test_what_has_no_bound_says_so(name, first):
    model = nn.Sequential(*([] if first else [nn.Linear(4, 4)]), STEPS[name])
    assert bound_of(model, torch.zeros(2, 4)) is None


SUMS = {
    "residual": lambda x: x + 2 * x.relu(),
    "difference": F.tanhshrink,
    "rrelu": lambda x: F.rrelu(x, 2.0, 3.0),
    "alpha": lambda x: torch.sub(x, x.relu(), alpha=3),
    "rsub": lambda x: torch.rsub(x, x.relu(), alpha=3),
    "constant": lambda x: x + 5,
    "spread": lambda x: x + x[..., :1],
    "spread alone": lambda x: x[..., :1] + torch.zeros(4, dtype=x.dtype),
    "larger": lambda x: torch.maximum(x, 3 * x),
    "lerp": lambda x: torch.lerp(x, -x, 2.0),
    "masked": lambda x: x.masked_fill(torch.tensor([True, False, True, False]), 0.0),
    "where": lambda x: torch.where(torch.tensor([True, False, True, False]), 2 * x, -x.flip(-1)),
    "buffer": lambda x: x * torch.tensor([1.0, -7.0, 2.0, 3.0], dtype=x.dtype),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("first", [False, True])
def test_nothing_is_steeper_than_the_bound_of_a_sum(name, first):
    torch.manual_seed(0)
    model = nn.Sequential(*([] if first else [nn.Linear(4, 4)]), Function(SUMS[name]), nn.Linear(4, 3))
    bound = bound_of(model, torch.zeros(2, 4))
    assert steepest(model, (4,)) <= bound * (1 + 1e-6)


def test_a_slope_that_is_learned_counts_as_it_is_now():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.PReLU(3))
    nn.init.eye_(model[0].weight)
    for slopes, expected in (([0.1, 0.2, 0.3], 1.0), ([0.1, -4.0, 0.3], 4.0)):
        model[1].weight.data = torch.tensor(slopes)
        assert bound_of(model, torch.zeros(2, 3)) == pytest.approx(expected)


class Scaled(nn.Module):
    """A linear layer whose units are multiplied, or divided, by a parameter."""

    def __init__(self, divide):
        super().__init__()
        self.linear, self.factor, self.divide = nn.Linear(3, 3, bias=False), nn.Parameter(torch.ones(3)), divide

    def forward(self, x):
        return self.linear(x) / self.factor if self.divide else self.linear(x) * self.factor


@pytest.mark.parametrize("divide", [False, True])
def test_a_factor_that_is_learned_counts_as_it_is_now(divide):
    model = Scaled(divide)
    nn.init.eye_(model.linear.weight)
    model.factor.data = torch.tensor([0.5, -3.0, 1.0])
    assert bound_of(model, torch.zeros(2, 3)) == pytest.approx(2.0 if divide else 3.0)
    assert steepest(model, (3,)) == pytest.approx(2.0 if divide else 3.0)
