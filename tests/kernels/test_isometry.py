"""Sums over a change, and the deviation from an isometry, against plain formulas."""

import pytest
import torch

from rekindle.kernels import isometry
from rekindle.kernels.isometry import (
    count_changed,
    deviation_from_isometry,
    frobenius_norm,
    squared_frobenius_error,
)


def two(*shape):
    generator = torch.Generator().manual_seed(0)
    before = torch.randn(shape, generator=generator)
    after = torch.where(torch.rand(shape, generator=generator) < 0.3, before + 1, before)
    return before, after


# In one piece, in several, and a batch of strided matrices that goes matrix by matrix.
@pytest.mark.parametrize("piece", [1 << 17, 7])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (4, 6), (3, 4, 6), (2, 3, 4, 5)])
def test_sums_piece_by_piece_are_the_sums(shape, piece, monkeypatch):
    monkeypatch.setattr(isometry, "PIECE", piece)
    before, after = two(*shape)
    if len(shape) == 3:
        before, after = before.permute(2, 0, 1), after.permute(2, 0, 1)
    difference = (before.double() - after.double()).square().sum()
    assert float(squared_frobenius_error(before, after)) == pytest.approx(float(difference))
    assert count_changed(before, after) == int((before != after).sum())
    assert frobenius_norm(before) == pytest.approx(float(before.double().norm()))


def test_sums_are_exact_where_float32_would_lose_a_value():
    values = torch.cat([torch.tensor([1e4]), torch.full((1000,), 1e-2)])
    assert frobenius_norm(values) ** 2 - 1e8 == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("piece", [1 << 17, 7])
@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 5, 2), (3, 2, 5)])
@pytest.mark.parametrize("scale_free", [False, True])
def test_the_deviation_by_singular_values(shape, piece, scale_free, monkeypatch):
    monkeypatch.setattr(isometry, "PIECE", piece)
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = matrices.clone()
    energy = torch.linalg.svdvals(matrices).square()
    if scale_free:
        energy = energy / energy.mean(1, keepdim=True)
    torch.testing.assert_close(deviation_from_isometry(matrices, scale_free=scale_free), (energy - 1).square().sum(1))
    assert torch.equal(matrices, before)


def test_isometries_multiples_of_them_and_zero():
    tall = torch.linalg.qr(torch.randn(6, 3, dtype=torch.float64)).Q
    for matrix in (tall, tall.T):
        assert float(deviation_from_isometry(matrix)) < 1e-20
        assert float(deviation_from_isometry(5 * matrix)) == pytest.approx(3 * (25 - 1) ** 2)
        assert float(deviation_from_isometry(5 * matrix, scale_free=True)) < 1e-20
    assert float(deviation_from_isometry(torch.zeros(6, 3), scale_free=True)) == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_deviation_of_half_precision_is_computed_in_float32(dtype):
    matrices = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(2)).to(dtype)
    found = deviation_from_isometry(matrices)
    assert found.dtype == torch.float32 and torch.equal(found, deviation_from_isometry(matrices.float()))


def test_the_imaginary_part_counts():
    before, after = torch.tensor([3 + 4j, 0j]), torch.tensor([3 + 4j, 12j])
    assert frobenius_norm(after) == 13.0 and count_changed(before, after) == 1
    assert float(squared_frobenius_error(before, after)) == 144.0
