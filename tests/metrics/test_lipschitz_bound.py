"""The bound against the slopes of whole networks; operation by operation it is tested in tests/graph/lipschitz."""

import math

import pytest
import torch
from torch import nn

from rekindle.metrics.lipschitz_bound import lipschitz_bound, measure
from rekindle.testing import ZOO
from tests.graph.lipschitz.oracle import reading_of, slope_at, steepest
from tests.metrics.subjects import Residual, subject_of, zoo_subject


def test_groups_by_hand():
    values = torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0], [0.5, 0.0]])
    assert lipschitz_bound(values) == 7.5 and lipschitz_bound(values, groups=2) == 4.5


CHAINS = ["mlp", "cnn_bn", "vgg", "mobilenet", "grouped_conv", "weight_norm_mlp", "conv_transpose"]


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_has_the_product_of_all_its_parts(name):
    reading = measure(zoo_subject(name))
    assert reading.details["bounded"] and not reading.details["why_not"]
    factors = [*reading.parts.values(), *(factor for _, factor in reading.details["operations"])]
    assert reading.summary == pytest.approx(math.prod(factors), rel=1e-6)
    assert reading.details["log10"] == pytest.approx(math.log10(reading.summary))


@pytest.mark.parametrize("name", [*CHAINS, "resnet_basic", "resnet_bottleneck", "densenet", "shared_module", "dueling"])
def test_outputs_are_no_farther_apart_than_the_bound_says(name):
    reading = measure(zoo_subject(name))
    assert reading.details["bounded"]
    model, x = ZOO[name].build().eval(), ZOO[name].example()[:2]
    for size in (0.01, 0.3, 10.0):
        y = x + size * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            slopes = (model(x) - model(y)).flatten(1).norm(dim=1) / (x - y).flatten(1).norm(dim=1)
        assert float(slopes.max()) <= reading.summary


def drawn(seed):
    """A random small network of operations that once were taken for 1-Lipschitz."""
    torch.manual_seed(seed)
    pick = lambda *of: of[int(torch.randint(len(of), ()))]  # noqa: E731
    model = nn.Sequential(
        pick(nn.Identity(), nn.ReflectionPad2d(2), nn.Upsample(scale_factor=2)),
        nn.Conv2d(
            2, 3, 3, stride=pick(1, 2), padding=2, padding_mode=pick("zeros", "reflect", "replicate", "circular")
        ),
        nn.BatchNorm2d(3),
        pick(nn.LeakyReLU(2.0), nn.PReLU(3, init=-1.5), nn.RReLU(1.5, 2.0), nn.ELU(3.0), nn.GELU()),
        pick(nn.MaxPool2d(3, 1), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 1), nn.AvgPool2d(2, 1, divisor_override=1)),
        pick(nn.Identity(), nn.Upsample(scale_factor=2), nn.ReplicationPad2d(2), nn.Upsample(size=9, mode="bilinear")),
        nn.Flatten(),
        nn.LazyLinear(3),
    )
    model(torch.zeros(2, 2, 5, 5))
    model[2].running_var.uniform_(1e-4, 1)
    return model.eval()


@pytest.mark.parametrize("seed", range(16))
def test_random_networks_are_never_steeper_than_the_bound(seed):
    model = drawn(seed)
    bound = reading_of(model, torch.randn(1, 2, 5, 5)).summary
    assert 0 < steepest(model, (2, 5, 5), count=3) <= bound < math.inf


def test_the_operations_once_taken_for_one_pass_the_product_of_the_layers():
    """Each of these is steeper than its layers alone, so that the product of those is no bound."""
    one = nn.Conv1d(1, 1, 1, bias=False)
    nn.init.ones_(one.weight)
    peak = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    for steep in (nn.MaxPool1d(3, 1), nn.Upsample(scale_factor=2), nn.ReflectionPad1d(2), nn.LeakyReLU(3.0)):
        model = nn.Sequential(one, steep)
        reading = reading_of(model.float(), torch.zeros(1, 1, 5))
        assert reading.details["product_log10"] == pytest.approx(0.0, abs=1e-6)
        assert 1.4 < max(slope_at(model.double(), sign * peak) for sign in (1, -1)) <= reading.summary * (1 + 1e-6)
        one.float()


def test_a_residual_sum_adds_up():
    torch.manual_seed(0)
    model = Residual()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    reading = reading_of(model, torch.zeros(1, 5))
    stem, up, down, up2, down2, head = (
        reading.parts[f"{name}.weight"] for name in ("stem", "up.0", "down.0", "up.1", "down.1", "head")
    )
    assert reading.summary == pytest.approx(stem * (1 + up * down) * (1 + up2 * down2) * head)
    assert 10 ** reading.details["product_log10"] < slope_at(model, torch.ones(5)) <= reading.summary * (1 + 1e-5)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("layer_norm_mlp", "norm1: aten.layer_norm has no Lipschitz bound"),
        ("squeeze_excite", "(model): aten.mul"),
        ("gpt2", "transformer.wte: aten.embedding"),
        ("transformer_encoder", "aten.scaled_dot_product_attention"),
    ],
)
def test_where_there_is_no_bound_the_reading_says_so_and_names_the_operation(name, named):
    reading = measure(zoo_subject(name))
    assert reading.summary == math.inf == reading.details["log10"] and not reading.details["bounded"]
    assert named in reading.details["why_not"]
    assert all(math.isfinite(part) for part in reading.parts.values()) and reading.parts
    assert math.isfinite(reading.details["product_log10"])


def test_a_weight_that_is_computed_from_its_tensor_is_named():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.ReLU(), nn.Linear(4, 2))
    why = reading_of(model, torch.zeros(2, 4)).details["why_not"]
    assert why.startswith("0")


def test_untraced_and_zero():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False))
    untraced = measure(subject_of(model))
    assert "not traced" in untraced.details["why_not"] and untraced.summary == math.inf
    nn.init.zeros_(model[0].weight)
    assert measure(subject_of(model, torch.zeros(1, 3))).summary == 0.0


def test_a_bound_beyond_all_numbers_is_told_by_its_logarithm():
    layers = [nn.Linear(3, 3, bias=False) for _ in range(12)]
    for layer in layers:
        nn.init.eye_(layer.weight)
        layer.weight.data *= 1e30
    reading = reading_of(nn.Sequential(*layers), torch.zeros(1, 3))
    assert reading.summary == math.inf and reading.details["log10"] == pytest.approx(360) and reading.details["bounded"]
