"""The slow and obvious: the steepest slope of a function, looked for at many places, beside the bound of the metric."""

import torch
from torch import nn

import rekindle as rk
from rekindle.graph.modules import tensors_of
from rekindle.metrics.lipschitz_bound import measure
from rekindle.metrics.reading import MetricInputs


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def reading_of(model, example):
    model = model.eval()
    return measure(MetricInputs(tensors_of(model), rk.trace(model, example, strict=False)))


def bound_of(model, example):
    """The bound, or None where the reading says that there is none."""
    found = reading_of(model, example)
    assert found.details["bounded"] == (not found.details["why_not"])
    return found.summary if found.details["bounded"] else None


def slope_at(model, x):
    """Largest singular value of the Jacobian at one input."""
    jacobian = torch.func.jacrev(lambda one: model(one[None])[0])(x)
    return float(torch.linalg.matrix_norm(jacobian.detach().reshape(-1, x.numel()), 2))


def slope_between(model, x, steps=20):
    """Largest |f(x) - f(y)| / |x - y| that a walk of y finds: y goes where the difference pulls it, by the Jacobian."""
    random = torch.Generator().manual_seed(3)
    direction, best = torch.randn(x.shape, generator=random, dtype=x.dtype), 0.0
    for step in range(steps):
        direction = direction / direction.norm() * (0.01, 0.3, 3.0)[step % 3]
        change, pull = torch.func.vjp(lambda one: model(one[None])[0], x + direction)
        difference = (change - model(x[None])[0]).detach()
        best = max(best, float(difference.norm() / direction.norm()))
        direction = pull(difference)[0].detach()
        if float(direction.norm()) == 0:
            direction = torch.randn(x.shape, generator=random, dtype=x.dtype)
    return best


def steepest(model, shape, count=12):
    """The steepest slope of a model in float64 at many random inputs, small and large, and between inputs."""
    model = model.eval().double()
    random = torch.Generator().manual_seed(1)
    found = []
    for number in range(count):
        x = torch.randn(shape, generator=random, dtype=torch.float64) * (0.1, 1.0, 10.0)[number % 3]
        found += [slope_at(model, x), slope_between(model, x)]
    return max(found)
