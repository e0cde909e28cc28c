"""Eigenvalues against a numerical Jacobian and against simulated gradient descent."""

import math

import pytest
import torch

import rekindle as rk
from rekindle.metrics.stability import measure, stability, triple_stability
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of
from tests.metrics.subjects import zoo_subject

CASES = [
    (0.7, 1.3, 0.05, 0.1),
    (-0.7, 1.3, 0.05, 0.1),
    (0.2, -0.3, 0.1, 0.5),
    (0.0, 2.0, 0.1, 0.01),
    (0.4, 0.5, 0.2, 0.0),
]


def step(weights, rest, gain, target, rate, decay):
    """Minus eta times the gradient of (A prod(theta) + B - y)^2 / 2 + lambda |theta|^2 / 2, by autograd."""
    weights = weights.detach().requires_grad_()
    loss = (gain * weights.prod() + rest - target).square() / 2 + decay / 2 * weights.square().sum()
    return -rate * torch.autograd.grad(loss, weights)[0]


def jacobian(number, error, gain, rate, decay):
    """Of the dynamics at zero, by central differences."""
    small = 1e-5
    columns = []
    for i in range(number):
        move = torch.zeros(number, dtype=torch.float64)
        move[i] = small
        ahead, behind = (step(sign * move, error, gain, 0.0, rate, decay) for sign in (1, -1))
        columns.append((ahead - behind) / (2 * small))
    return torch.stack(columns, 1)


@pytest.mark.parametrize("case", CASES)
def test_double_are_the_eigenvalues_at_zero(case):
    values = torch.linalg.eigvalsh(jacobian(2, *case))
    assert values.tolist() == pytest.approx(list(stability(*case)), abs=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_triple_is_minus_eta_lambda_three_times(case):
    matrix = jacobian(3, *case)
    assert torch.allclose(matrix, triple_stability(*case[2:]) * torch.eye(3, dtype=torch.float64), atol=1e-6)


def simulate(weights, case, steps):
    error, gain, rate, decay = case
    weights = torch.tensor(weights, dtype=torch.float64)
    for _ in range(steps):
        weights = weights + step(weights, error, gain, 0.0, rate, decay)
    return weights


@pytest.mark.parametrize("case", CASES)
def test_double_grows_or_decays_at_the_rate_of_the_eigenvalue(case):
    """Along each eigenvector a small pair is multiplied by 1 + alpha a step."""
    error, gain, *_ = case
    low, high = stability(*case)
    side = -math.copysign(1.0, error * gain) if error else 1.0  # the growing direction lowers the error
    for sign, value in ((side, high), (-side, low)):
        end = simulate([1e-6, sign * 1e-6], case, 50)
        assert float(end[0]) == pytest.approx(1e-6 * (1 + value) ** 50, rel=1e-4)


def test_double_returns_exactly_where_the_error_beats_the_decay():
    for error in (0.05, 0.15):  # |B - y||A| = 0.1 and 0.3 against lambda = 0.2
        end = simulate([1e-3, 0.9e-3], (-error, 2.0, 0.1, 0.2), 1000).norm()
        assert (end > 0.05) == (stability(-error, 2.0, 0.1, 0.2)[1] > 0) == (error == 0.15)


def test_triple_does_not_return_from_the_same_place_however_large_the_error():
    end = simulate([1e-3, 0.9e-3, 1.1e-3], (-5.0, 2.0, 0.1, 0.2), 100).norm()
    assert end < 1e-3 * math.sqrt(3) * (1 + triple_stability(0.1, 0.2)) ** 90


def test_reading_counts_units_that_stay():
    model = ZOO["cnn_bn"].build()
    assert measure(zoo_subject("cnn_bn")).summary == 0
    with torch.no_grad():
        model.conv1.weight[:2] = 0
        model.bn1.weight[:3] = 0
        model.conv2.weight[:, 1:3] = 0
    reading = measure(zoo_subject("cnn_bn", model=model))
    assert reading.parts == {"conv1": 1 / 7, "conv2": 0.0} and reading.summary == 1 / 18
    assert reading.details["conditional"]["conv1"] == 2 / 7


def test_mutually_frozen_units_of_a_plain_network_are_conditional_only():
    model = ZOO["mlp"].build()
    rk.mutually_frozen_(model, probability=1.0, graph=graph_of(ZOO["mlp"]))
    reading = measure(zoo_subject("mlp", model=model))
    assert reading.summary == 0 and reading.details["conditional_summary"] == 1
