"""The bound against the true norm of each layer as one big matrix, and against slopes of whole networks."""

import math

import pytest
import torch
from torch import nn

from rekindle.metrics.lipschitz_bound import lipschitz_bound, measure
from rekindle.testing import ZOO
from tests.metrics.subjects import Residual, subject_of, zoo_subject


def true_norm(layer, shape):
    """Spectral norm of a linear layer's Jacobian over a whole input."""
    jacobian = torch.func.jacrev(lambda x: layer(x[None])[0])(torch.zeros(shape))
    return float(torch.linalg.matrix_norm(jacobian.detach().reshape(-1, math.prod(shape)), 2))


LAYERS = {
    "conv": (nn.Conv2d(3, 5, 3, padding=1, bias=False), (3, 5, 5)),
    "strided": (nn.Conv2d(3, 5, 3, stride=2, bias=False), (3, 7, 7)),
    "dilated": (nn.Conv2d(2, 3, 3, dilation=2, bias=False), (2, 6, 6)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (4, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4, bias=False), (4, 5, 5)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False), (4, 3, 3)),
    "1d": (nn.Conv1d(3, 4, 3, bias=False), (3, 8)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_convolution_is_within_its_bound(kind):
    layer, shape = LAYERS[kind]
    bound = measure(subject_of(nn.Sequential(layer))).summary
    assert true_norm(layer, shape) <= bound * (1 + 1e-5)


def test_reached_by_a_constant_kernel_and_by_a_linear_layer():
    layer = nn.Conv1d(1, 1, 3, padding=1, bias=False)
    nn.init.ones_(layer.weight)  # the norm goes to 3 with the length
    assert measure(subject_of(nn.Sequential(layer))).summary == pytest.approx(3.0)
    assert 2.97 < true_norm(layer, (1, 60)) <= 3.0
    linear = nn.Linear(4, 3, bias=False)
    assert measure(subject_of(nn.Sequential(linear))).summary == pytest.approx(true_norm(linear, (4,)), rel=1e-5)


def test_groups_by_hand():
    values = torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0], [0.5, 0.0]])
    assert lipschitz_bound(values) == 7.5 and lipschitz_bound(values, groups=2) == 4.5


@pytest.mark.parametrize(
    "name", ["mlp", "cnn_bn", "vgg", "mobilenet", "grouped_conv", "weight_norm_mlp", "conv_transpose"]
)
def test_chains_are_within_the_product(name):
    reading = measure(zoo_subject(name))
    assert reading.details["chain"]
    assert reading.summary == pytest.approx(math.prod(reading.parts.values()), rel=1e-6)
    model, x = ZOO[name].build().eval(), ZOO[name].example()[:2]
    y = x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        slopes = (model(x) - model(y)).flatten(1).norm(dim=1) / (x - y).flatten(1).norm(dim=1)
    assert float(slopes.max()) <= reading.summary


def test_batch_norm_without_parameters_counts_too():
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2, bias=False))
    model[1].running_var.fill_(0.25)
    parts = measure(subject_of(model.eval(), torch.zeros(2, 3))).parts
    assert parts["1.running_var"] == pytest.approx(2.0, rel=1e-3)


class Hidden(nn.Module):
    """A normalization that has no parameter to be seen by."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(3, 4), nn.LayerNorm(4, elementwise_affine=False), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(self.norm(self.a(x)).relu())


@pytest.mark.parametrize("model", [Residual(), Hidden(), nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 2))])
def test_no_chain_says_why(model):
    size = 5 if isinstance(model, Residual) else 3
    details = measure(subject_of(model, torch.randn(4, size))).details
    assert not details["chain"] and details["why_not"]


def test_a_residual_sum_can_exceed_the_product_which_is_why_it_is_no_chain():
    model = Residual()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    reading = measure(subject_of(model, torch.zeros(1, 5)))
    assert true_norm(model, (5,)) > reading.summary


def test_untraced_and_zero():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False))
    assert "not traced" in measure(subject_of(model)).details["why_not"]
    nn.init.zeros_(model[0].weight)
    assert measure(subject_of(model)).summary == 0.0
