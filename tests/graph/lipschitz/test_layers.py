"""Layers against the norm of their whole matrix."""

import pytest
import torch
from torch import nn

from tests.graph.lipschitz.oracle import bound_of, reading_of, slope_at, steepest

LAYERS = {
    "linear": (nn.Linear(5, 4), (5,)),
    "conv": (nn.Conv2d(3, 5, 3, padding=1), (3, 5, 5)),
    "same": (nn.Conv2d(3, 5, 3, padding="same"), (3, 5, 5)),
    "strided": (nn.Conv2d(3, 5, 3, stride=2), (3, 7, 7)),
    "dilated": (nn.Conv2d(2, 3, 3, dilation=2), (2, 6, 6)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (4, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (4, 5, 5)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, groups=2), (4, 3, 3)),
    "transposed, strided": (nn.ConvTranspose1d(3, 2, 5, stride=2, output_padding=1), (3, 6)),
    "1d": (nn.Conv1d(3, 4, 3), (3, 8)),
    "3d": (nn.Conv3d(2, 2, 2), (2, 3, 3, 3)),
    "reflect": (nn.Conv1d(2, 3, 5, padding=4, padding_mode="reflect"), (2, 6)),
    "replicate": (nn.Conv2d(2, 3, 3, padding=2, padding_mode="replicate"), (2, 4, 4)),
    "circular": (nn.Conv2d(2, 3, 3, padding=2, padding_mode="circular"), (2, 4, 4)),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("seed", range(2))
def test_a_layer_is_within_its_bound(kind, seed):
    layer, shape = LAYERS[kind]
    torch.manual_seed(seed)
    layer.float().reset_parameters()
    norm = slope_at(layer, torch.randn(shape))
    bound = bound_of(nn.Sequential(layer), torch.randn(1, *shape))
    assert norm <= bound * (1 + 1e-5)
    assert bound == pytest.approx(norm, rel=1e-5) if kind == "linear" else bound < 20 * norm


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_that_repeats_what_it_reads_passes_the_sum_over_the_kernel(mode):
    """Why padding counts: a kernel that looks at the repeated border alone is steeper than its own norm."""
    layer = nn.Conv1d(1, 1, 1, padding=2, padding_mode=mode, bias=False)
    nn.init.ones_(layer.weight)
    norm = slope_at(layer, torch.randn(1, 3))
    assert norm > 1.4 and norm <= bound_of(nn.Sequential(layer), torch.randn(1, 1, 3)) * (1 + 1e-6)


def test_reached_by_a_constant_kernel():
    layer = nn.Conv1d(1, 1, 3, padding=1, bias=False)
    nn.init.ones_(layer.weight)  # the norm goes to 3 with the length
    assert bound_of(nn.Sequential(layer), torch.zeros(1, 1, 60)) == pytest.approx(3.0)
    assert 2.97 < slope_at(layer, torch.zeros(1, 60)) <= 3.0


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_batch_norm_by_its_running_variance_with_its_own_epsilon(affine, epsilon):
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4, eps=epsilon, affine=affine)).eval()
    nn.init.eye_(model[0].weight)
    model[1].running_var.copy_(torch.tensor([1.0, 1e-8, 4.0, 1.0]))  # a channel that was hardly ever alive
    if affine:
        model[1].weight.data = torch.tensor([0.5, -2.0, 1.0, 1.0])
    expected = (2.0 if affine else 1.0) / (1e-8 + epsilon) ** 0.5
    found = reading_of(model, torch.zeros(2, 3))
    assert found.summary == pytest.approx(expected, rel=1e-4)
    assert found.parts["1.weight" if affine else "1.running_var"] == pytest.approx(expected, rel=1e-4)
    assert steepest(model, (3,)) == pytest.approx(expected, rel=1e-4)


class Product(nn.Module):
    """Layers written as products."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.weight, self.bias = kind, nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))

    def forward(self, x):
        if self.kind == "from the left":
            return (self.weight @ x.mT).mT
        if self.kind == "twice":
            return x @ self.weight @ self.weight.T
        if self.kind == "addmm":
            return torch.addmm(self.bias, x, self.weight)
        if self.kind == "several":
            return x @ self.weight.reshape(2, 2, 4).mT.reshape(2, 4, 2)
        if self.kind == "repeated":
            return nn.functional.linear(x, self.weight.repeat(3, 1))
        return torch.einsum("bi,oi->bo", x, self.weight.exp())


@pytest.mark.parametrize("kind", ["from the left", "twice", "addmm"])
def test_products_with_a_whole_parameter(kind):
    torch.manual_seed(0)
    model = Product(kind)
    norm = slope_at(model, torch.randn(4))
    assert bound_of(model, torch.randn(2, 4)) == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("kind", ["several", "repeated", "computed"])
def test_products_with_parts_copies_and_functions_of_a_parameter_have_no_bound_that_is_known(kind):
    assert bound_of(Product(kind), torch.randn(2, 4)) is None


@pytest.mark.parametrize(
    "layer", [nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.BatchNorm1d(4, track_running_stats=False)]
)
def test_normalizations_by_their_own_values_have_none(layer):
    found = reading_of(nn.Sequential(nn.Linear(3, 4), layer), torch.randn(2, 3))
    assert not found.details["bounded"] and found.details["why_not"].startswith("1: aten.")
