"""Spectra against a decomposition of one matrix after the other, and a bound against the layer itself."""

import pytest
import torch
from torch import nn

from rekindle.kernels import spectra
from rekindle.kernels.spectra import convolution_bound, rank_by_energy, singular_values


def some(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("piece", [1 << 22, 1, 25])
@pytest.mark.parametrize("shape", [(1, 3, 3), (5, 4, 3), (5, 3, 4), (4, 1, 6), (4, 6, 1), (2, 1, 1)])
def test_each_matrix_by_itself(shape, piece, monkeypatch):
    monkeypatch.setattr(spectra, "PIECE", piece)
    matrices = some(*shape)
    alone = torch.stack([torch.linalg.svdvals(matrix) for matrix in matrices])
    torch.testing.assert_close(singular_values(matrices), alone)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_has_no_spectrum_and_spoils_no_other(bad):
    matrices = some(3, 4, 4)
    alone = singular_values(matrices)
    matrices[1, 2, 3] = bad
    found = singular_values(matrices)
    assert found[1].isnan().all()
    torch.testing.assert_close(found[::2], alone[::2])


def test_stable_rank_is_the_quotient_of_two_norms():
    matrices = some(6, 5, 3)
    frobenius, spectral = matrices.flatten(1).norm(dim=1), torch.linalg.matrix_norm(matrices, 2)
    torch.testing.assert_close(rank_by_energy(singular_values(matrices)), (frobenius / spectral).square())
    tiny = rank_by_energy(torch.tensor([1e-30, 1e-30, 0.0]))
    assert float(tiny) == 2.0, "squares of small values must not vanish"


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 0)])
def test_the_bound_holds_for_the_layer_as_one_matrix(groups, stride, padding):
    layer = nn.Conv2d(4, 6, 3, stride, padding, groups=groups, bias=False).double()
    eye = torch.eye(4 * 5 * 5, dtype=torch.float64).reshape(-1, 4, 5, 5)
    exact = torch.linalg.matrix_norm(layer(eye).flatten(1), 2)
    parts = layer.weight.detach().reshape(groups, 6 // groups, 4 // groups, 9).permute(0, 3, 1, 2)
    bound = convolution_bound(singular_values(parts.reshape(-1, 6 // groups, 4 // groups)), groups)
    assert exact <= bound <= 9 * exact


def test_for_a_linear_layer_it_is_the_norm_itself():
    matrix = some(1, 5, 3)
    torch.testing.assert_close(convolution_bound(singular_values(matrix)), torch.linalg.matrix_norm(matrix[0], 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 3, 3), (4, 1, 6), (5, 4, 3)])
def test_half_precision_is_decomposed_in_float32(shape, dtype):
    matrices = some(*shape).to(dtype)
    found = singular_values(matrices)
    assert found.dtype == torch.float32 and torch.equal(found, singular_values(matrices.float()))
