"""Top of the Hessian: against the dense Hessian of tiny networks."""

import sys

import pytest
import torch
from torch import nn
from torch.func import functional_call, hessian

from rekindle.errors import PlanError
from rekindle.metrics import hessian_top
from rekindle.metrics._loss import MeanLoss
from tests.metrics.live import classification, live, tiny, vectors


def dense(model, batches, loss):
    """The whole matrix, by torch.func.hessian over one flat vector."""
    model = model.eval()
    shapes = {name: p.shape for name, p in model.named_parameters()}
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    def of(vector):
        pieces = vector.split([shape.numel() for shape in shapes.values()])
        values = {n: piece.reshape(s) for (n, s), piece in zip(shapes.items(), pieces, strict=True)}
        return sum(loss(lambda x: functional_call(model, values, (x,)), batch) for batch in batches) / len(batches)

    return hessian(of)(flat)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(4, 12), nn.Linear(4, 3)

    def forward(self, x):
        q, k, v = self.qkv(x[:, None, :].expand(-1, 3, -1) * torch.arange(1.0, 4)[:, None]).chunk(3, -1)
        return self.head(nn.functional.scaled_dot_product_attention(q, k, v).mean(1))


def normalized():
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 3))


@pytest.mark.parametrize("build", [tiny, normalized, Attention])
def test_against_the_dense_hessian(build):
    torch.manual_seed(0)
    model, batches = build().double(), [(x.double(), y) for x, y in vectors()]
    model.train()
    subject = live(model, batches)
    expected = torch.linalg.eigvalsh(dense(model, batches, classification))[-1]
    model.train()
    reading = hessian_top.measure(subject)
    assert reading.summary == pytest.approx(expected.item(), rel=1e-3)
    assert model.training


def test_products_are_those_of_the_dense_hessian():
    model, batches = tiny().double(), [(x.double(), y) for x, y in vectors()]
    matrix = dense(model, batches, classification)
    loss = MeanLoss(live(model, batches))
    parameters = loss.parameters(trained_only=True)
    v = torch.randn(len(matrix), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with loss.open("test"):
        found = hessian_top.joined(loss.product(parameters, hessian_top.split(v, parameters)), parameters)
    torch.testing.assert_close(found, matrix @ v)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 40])
def test_small_and_negative_matrices(size):
    values = torch.linspace(-5, -1, size, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    matrix = turn @ torch.diag(values) @ turn.T
    found = hessian_top.hessian_top(lambda v: matrix @ v, size, 2, tolerance=1e-8)
    assert found == pytest.approx(values.flip(0)[:2].tolist(), rel=1e-6)


def test_a_flat_loss_has_no_curvature():
    assert hessian_top.hessian_top(torch.zeros_like, 30, 2) == [0.0, 0.0]


def test_missing_scipy_is_told_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse.linalg", None)
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(PlanError) as told:
        hessian_top.measure(live(tiny(), vectors()))
    assert told.value.fix == "pip install rekindle[audit]" and "SciPy" in told.value.expected


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(PlanError, match="finite"):
        hessian_top.measure(live(tiny(), vectors(), loss=lambda m, b: classification(m, b).mul(torch.inf)))
