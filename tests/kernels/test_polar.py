"""Polar factors against the singular value decomposition, and what degenerate matrices give."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rekindle.kernels.isometry import deviation_from_isometry, squared_frobenius_error
from rekindle.kernels.polar import MUON, QUINTIC, newton_schulz, polar, polar_exact


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 100))
def test_exact_is_the_nearest_isometry(out, in_, seed):
    w = random(out, in_, seed=seed)
    p = polar_exact(w)
    assert float(deviation_from_isometry(p.double())) < 1e-10
    # Procrustes: no other isometry is nearer (FIRE, eq. 4)
    q, _ = torch.linalg.qr(random(max(out, in_), max(out, in_), seed=seed + 1))
    other = q[:out, :in_] if out >= in_ else q[:in_, :out].T
    if deviation_from_isometry(other) < 1e-6:
        assert float(squared_frobenius_error(w, p)) <= float(squared_frobenius_error(w, other)) + 1e-6


def test_batches_are_the_same_as_one_by_one():
    w = random(3, 2, 5, 4)
    assert torch.allclose(polar_exact(w)[1, 1], polar_exact(w[1, 1]), atol=1e-6)
    assert torch.allclose(newton_schulz(w)[1, 1], newton_schulz(w[1, 1]), atol=1e-6)


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5)])
def test_newton_schulz_is_algorithm_1_to_the_letter(shape):
    w = random(*shape)
    x = w / w.norm()
    for _ in range(10):  # FIRE, Algorithm 1
        x = 1.5 * x - 0.5 * (x @ (x.T @ x))
    assert torch.allclose(newton_schulz(w, 10), x, atol=1e-5)


def test_quintic_of_b3_and_convergence():
    w = random(9, 6)
    x = w / w.norm()
    for _ in range(3):
        a = x.T @ x
        x = 2 * x - 1.5 * (x @ a) + 0.5 * (x @ a @ a)
    assert torch.allclose(newton_schulz(w, 3, QUINTIC), x, atol=1e-5)
    assert torch.allclose(newton_schulz(w, 40), polar_exact(w), atol=1e-4)
    assert torch.allclose(newton_schulz(w, 40, QUINTIC), polar_exact(w), atol=1e-4)


def test_muon_oscillates_near_one():
    s = torch.linalg.svdvals(newton_schulz(random(9, 6), 10, MUON))
    assert 0.5 < float(s.min()) and float(s.max()) < 1.3


def test_the_issue_s_measurement_ten_cubic_steps_are_short_of_an_isometry():
    """512 x 512 Gaussian: DfI stays far from zero, where exact reaches it."""
    w = random(512, 512)
    assert float(deviation_from_isometry(newton_schulz(w, 10))) > 10
    assert float(deviation_from_isometry(polar_exact(w).double())) < 1e-6


def test_zero_and_rank_deficient_matrices_have_a_defined_result():
    assert not polar_exact(torch.zeros(3, 4)).any() and not newton_schulz(torch.zeros(3, 4)).any()
    one = torch.ones(3, 4)
    expected = one / 12**0.5  # rank one: the missing directions stay zero
    assert torch.allclose(polar_exact(one), expected, atol=1e-6)
    assert torch.allclose(newton_schulz(one, 30), expected, atol=1e-5)


def test_dfi_by_double_loop():
    w = random(5, 3)
    total = sum((float(w[:, i] @ w[:, j]) - (1.0 if i == j else 0.0)) ** 2 for i in range(3) for j in range(3))
    assert float(deviation_from_isometry(w)) == pytest.approx(total, rel=1e-5)
    assert float(deviation_from_isometry(w.T)) == pytest.approx(total, rel=1e-5)  # the smaller side
    assert float(deviation_from_isometry(torch.zeros(5, 3), scale_free=True)) == 3


SHAPES = [
    (3, 64, 64),
    (2, 40, 90),
    (2, 150, 150),
    (1, 200, 180),
    (1, 200, 140),
    (1, 400, 400),
    (1, 420, 400),
    (1, 100, 400),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_polar_reaches_its_tolerance(shape):
    w = random(*shape, seed=3)
    u, _, vh = torch.linalg.svd(w.double(), full_matrices=False)
    x = polar(w, 1e-4)
    assert float(deviation_from_isometry(x.double()).max()) / min(shape[1:]) <= 1.01e-4
    assert float(((x - u @ vh).norm(dim=(1, 2)) / (u @ vh).norm(dim=(1, 2))).max()) < 1e-2


@pytest.mark.parametrize("size", [20, 120, 400])
def test_nearly_singular_matrices_are_done_exactly(size):
    u, _, vh = torch.linalg.svd(random(size, size).double())
    s = torch.logspace(0, -6, size, dtype=torch.float64)
    w = ((u * s) @ vh).float()
    x = polar(w[None], 1e-6)[0]
    assert float(deviation_from_isometry(x.double())) / size < 1e-6


@pytest.mark.parametrize("size", [8, 120, 400])
def test_zero_and_rank_one_stay_defined_in_every_way(size):
    assert not polar(torch.zeros(2, size, size)).any()
    one = torch.ones(1, size, size)
    assert torch.allclose(polar(one), one / size, atol=1e-5)
    assert not polar_exact(torch.zeros(2, size, size)).any()


@pytest.mark.parametrize("shape", [(2, 30, 20), (1, 150, 150), (1, 120, 500)])
def test_exact_reaches_1e_minus_10_per_row(shape):
    x = polar_exact(random(*shape))
    assert float(deviation_from_isometry(x.double()).max()) / min(shape[1:]) < 1e-10


def test_scale_does_not_matter():
    for size in (10, 120, 400):
        w = random(1, size, size)
        for factor in (1e-12, 1e12):
            assert torch.allclose(polar(w * factor), polar(w), atol=2e-2)
            assert torch.allclose(polar_exact(w * factor), polar_exact(w), atol=1e-5)


def test_the_way_of_other_devices_gives_the_same(monkeypatch):
    """Cubic steps alone, which a GPU takes for every size: here on the CPU."""
    from rekindle.kernels import polar as module

    monkeypatch.setattr(module, "BATCHED", 10**9)
    for shape in ((2, 150, 150), (1, 120, 500), (1, 400, 400)):
        w = random(*shape, seed=5)
        x = polar(w, 1e-4)
        assert float(deviation_from_isometry(x.double()).max()) / min(shape[1:]) <= 1.01e-4
        assert float((x - polar_exact(w)).norm() / x.norm()) < 1e-2


@pytest.mark.parametrize("shape", [(30, 192, 192), (7, 128, 100), (3, 700, 600)])
def test_a_batch_gives_what_each_matrix_gives_alone(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    matrices[1] = 0
    together = polar(matrices, 1e-8)
    for one, found in zip(matrices, together, strict=True):
        torch.testing.assert_close(found, polar_exact(one[None])[0], atol=2e-3, rtol=0)


def test_large_matrices_in_pieces_agree_with_the_exact_factor():
    matrix = torch.randn(2100, 2100, generator=torch.Generator().manual_seed(4))
    found = polar(matrix[None], 1e-6)[0]
    assert float((found @ found.T - torch.eye(2100)).norm() ** 2) / 2100 < 1e-6
    symmetric = found.T @ matrix  # W = P H with H symmetric and positive: what makes P the polar factor
    assert float((symmetric - symmetric.T).norm() / symmetric.norm()) < 1e-2
    assert float(torch.linalg.eigvalsh((symmetric + symmetric.T) / 2).min()) > -1e-2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(8, 8), (3, 5, 20), (100, 100), (40, 150), (2, 100, 110), (400, 400)])
@pytest.mark.parametrize("solve", [polar, polar_exact, newton_schulz])
def test_half_precision_is_computed_in_float32_and_rounded_once(shape, dtype, solve):
    matrices = random(*shape).to(dtype)
    found = solve(matrices)
    assert found.dtype == dtype and torch.equal(found, solve(matrices.float()).to(dtype))
