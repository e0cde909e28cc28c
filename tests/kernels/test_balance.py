"""The least norm among equal networks, against a general minimizer."""

import math
from itertools import pairwise

import pytest
import torch

from rekindle.kernels.balance import entrywise_norm, layer_balance, least_chain, rescaling, shares

POWERS = [(2.0, 2.0), (1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (3.0, 1.5)]


def chain(seed, sizes=(3, 4, 5, 2)):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(b, a, generator=generator, dtype=torch.float64).exp() for a, b in pairwise(sizes)]


def slow_norm(weights, p, q):
    total = 0.0
    for weight in weights:
        for row in weight.tolist():
            total += sum(abs(x) ** p for x in row) ** (q / p)
    return total ** (1 / q)


def brute_force(weights, p, q):
    """The least norm over log factors of all hidden units, by a general minimizer with derivatives."""
    logs = [torch.zeros(len(weight), dtype=torch.float64, requires_grad=True) for weight in weights[:-1]]
    optimizer = torch.optim.LBFGS(logs, max_iter=500, tolerance_change=1e-14, line_search_fn="strong_wolfe")

    def norm():
        optimizer.zero_grad()
        factors = [torch.ones(weights[0].shape[1]), *(log.exp() for log in logs), torch.ones(len(weights[-1]))]
        layers = zip(pairwise(factors), weights, strict=True)
        rows = [(after[:, None] * w / before).pow(p).sum(1).pow(q / p).sum() for (before, after), w in layers]
        total = sum(rows) ** (1 / q)
        total.backward()
        return total

    optimizer.step(norm)
    return float(norm().detach())


@pytest.mark.parametrize("powers", POWERS)
def test_the_least_norm_equals_a_general_minimizer(powers):
    weights = chain(0)
    assert entrywise_norm(weights, *powers) == pytest.approx(slow_norm(weights, *powers))
    least = entrywise_norm(least_chain(weights, *powers), *powers)
    assert least == pytest.approx(brute_force(weights, *powers), rel=1e-6)


@pytest.mark.parametrize("powers", POWERS)
def test_no_step_raises_the_norm_and_the_function_stays(powers):
    weights = chain(1)
    norms = [entrywise_norm(least_chain(weights, *powers, steps=steps), *powers) for steps in range(12)]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(norms)) and norms[-1] < norms[0]
    x = torch.randn(3, 7, dtype=torch.float64)
    run = lambda layers: layers[2] @ (layers[1] @ (layers[0] @ x).relu()).relu()  # noqa: E731
    assert torch.allclose(run(weights), run(least_chain(weights, *powers)))


def test_at_the_minimum_each_unit_is_balanced():
    """Saul: the norm is stationary where what comes in at a unit equals what goes out."""
    balanced = least_chain(chain(2), 1.0, 2.0)
    for before, after in pairwise(balanced):
        assert torch.allclose(shares(before, 1.0, 2.0)[0], shares(after, 1.0, 2.0)[1], rtol=1e-4)


def test_the_least_norm_does_not_depend_on_where_a_network_stands():
    a = torch.tensor([0.1, 3.0, 20.0, 1.0], dtype=torch.float64)
    first, *rest = chain(3)
    moved = [first * a[:, None], rest[0] / a, rest[1]]
    least = [entrywise_norm(least_chain(each)) for each in (moved, chain(3))]
    assert least[0] == pytest.approx(least[1], rel=1e-6)


def test_a_unit_without_one_side_is_left_alone():
    assert rescaling(torch.tensor([4.0, 0.0, 3.0]), torch.tensor([1.0, 2.0, 0.0]), 0.5).tolist() == [0.5, 1.0, 1.0]
    weights = [torch.tensor([[1.0], [0.0]]), torch.tensor([[1.0, 5.0]])]
    assert [w.tolist() for w in least_chain(weights)] == [w.tolist() for w in weights]


def test_layers_that_drift_apart():
    """Definition 2 on two layers of norms (1, 2), then (2, 2)."""
    assert layer_balance((1.0, 2.0), (2.0, 2.0)) == 1.0 == layer_balance((2.0, 1.0), (2.0, 2.0))
    assert math.isnan(layer_balance((0.0, 1.0), (1.0, 1.0)))
