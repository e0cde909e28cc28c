"""Shrinking by direction against a plain double loop."""

import math

import pytest
import torch

from rekindle.kernels.direction import cosine, shrink_by_direction


def by_loop(weight, direction, floor):
    """Row by row and value by value."""
    result = []
    for w, g in zip(weight.tolist(), direction.tolist(), strict=True):
        dot = sum(a * b for a, b in zip(w, g, strict=True))
        norms = math.sqrt(sum(a * a for a in w)) * math.sqrt(sum(b * b for b in g))
        factor = min(max(dot / norms if norms else 0.0, floor), 1.0)
        result.append([a * factor for a in w])
    return torch.tensor(result)


@pytest.mark.parametrize("floor", [0.0, 0.05, 0.3, 1.0])
def test_rows_as_in_the_loop(floor):
    random = torch.Generator().manual_seed(0)
    weight, direction = torch.randn(2, 40, 7, generator=random)
    direction[:3] = weight[:3] * torch.tensor([[2.0], [-1.0], [1e-3]])
    weight[3], direction[4] = 0, 0
    assert torch.allclose(shrink_by_direction(weight, direction, floor, (1,)), by_loop(weight, direction, floor))


def test_zero_vectors_have_a_cosine_of_zero():
    some = torch.randn(3, 4)
    assert (cosine(torch.zeros(3, 4), some, (1,)) == 0).all() and (cosine(some, torch.zeros(3, 4), (1,)) == 0).all()


@pytest.mark.parametrize("size", [1e-30, 1e-42, 1e30])
def test_size_does_not_matter(size):
    w, g = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 1.0]])
    assert float(cosine(w, g * size, (1,))) == pytest.approx(0.8, rel=1e-6)


def test_one_value_gives_its_sign():
    w, g = torch.tensor([[2.0], [2.0], [-0.1]]), torch.tensor([[1e-9], [-5.0], [-3.0]])
    assert shrink_by_direction(w, g, 0.25, (1,)).flatten().tolist() == [2.0, 0.5, pytest.approx(-0.1)]
