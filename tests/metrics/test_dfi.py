"""Deviation from isometry against singular values, and fire as what makes it zero."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.metrics.dfi import dfi, measure
from rekindle.testing import ZOO
from tests.metrics.subjects import KINDS, plain_matrices, subject_of, zoo_subject


def slow(matrix, scale=1.0):
    """Sum over entries of the Gram matrix of the smaller side, by loops."""
    rows = (matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T).double() / scale
    size = len(rows)
    return sum((float(rows[i] @ rows[j]) - (i == j)) ** 2 for i in range(size) for j in range(size))


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (1, 6)])
def test_formula_on_the_smaller_side(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    values = torch.linalg.svdvals(matrix)
    assert float(dfi(matrix)) == pytest.approx(slow(matrix)) == pytest.approx(float(((values**2 - 1) ** 2).sum()))
    assert float(dfi(matrix, scale=0.3)) == pytest.approx(slow(matrix, 0.3))
    assert float(dfi(matrix, scale=None)) == pytest.approx(slow(matrix, float(values.square().mean().sqrt())))


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("vit_mha", "gpt2")])
def test_layers_of_every_kind(name):
    model = ZOO[name].build()
    reading = measure(zoo_subject(name))
    rows_in_all = total = 0
    for part in reading.parts:
        matrices = plain_matrices(model, part)
        rows = sum(min(matrix.shape) for matrix in matrices)
        expected = sum(slow(matrix) for matrix in matrices)
        assert reading.details["total"][part] == pytest.approx(expected, rel=1e-4)
        assert reading.parts[part] == pytest.approx(expected / rows, rel=1e-4)
        rows_in_all, total = rows_in_all + rows, total + expected
    assert reading.summary == pytest.approx(total / rows_in_all, rel=1e-4)
    assert reading.details["worst"] == max(reading.parts, key=reading.parts.get)


def test_fused_projection_and_conv1d():
    model = ZOO["gpt2"].build()
    reading = measure(zoo_subject("gpt2"))
    fused = model.transformer.h[1].attn.c_attn.weight.detach().T  # [3 * 12, 12]
    for number, role in enumerate("qkv"):
        part = f"transformer.h.1.attn.c_attn.weight[{role}]"
        assert reading.details["total"][part] == pytest.approx(slow(fused[12 * number : 12 * number + 12]), rel=1e-4)
    assert "transformer.wte.weight" in reading.details["left_out"]


@pytest.mark.parametrize("name", ["mlp", "cnn_bn", "grouped_conv", "conv_transpose"])
def test_after_fire_it_is_zero_with_its_scale(name):
    model, example = ZOO[name].build(), ZOO[name].example()
    before = measure(subject_of(model, example)).details
    rk.fire_(model, example=example, solver="exact")
    after = measure(subject_of(model, example)).details
    assert after["fire_scale_summary"] < 1e-8 < before["fire_scale_summary"]
    assert after["scale_free_summary"] < 1e-8 < before["scale_free_summary"]


def test_a_zero_matrix_counts_its_rows():
    model = nn.Sequential(nn.Linear(4, 3, bias=False))
    nn.init.zeros_(model[0].weight)
    assert measure(subject_of(model)).summary == 1.0
