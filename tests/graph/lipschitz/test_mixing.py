"""Pooling, padding, upsampling, repetitions, reductions: never steeper than the bound, and as steep where known."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.graph.lipschitz.oracle import Function, bound_of, slope_at, steepest

IMAGE, SIGNAL = (2, 6, 6), (2, 9)


def peak(shape, at):
    """An input whose largest element is in the middle: all windows that hold it take it."""
    x = torch.zeros(shape, dtype=torch.float64)
    x[(0, *at)] = 1.0
    return x


# operation, shape of the input, the constant where it is known exactly, an input where it is reached
EXACT = {
    "max, overlap": (nn.MaxPool1d(3, 1), SIGNAL, math.sqrt(3), peak(SIGNAL, (4,))),
    "max, overlap in 2d": (nn.MaxPool2d(3, 1), IMAGE, 3.0, peak(IMAGE, (3, 3))),
    "max, stride 2 of 3": (nn.MaxPool2d(3, 2, 1), IMAGE, 2.0, peak(IMAGE, (3, 3))),
    "max, dilated": (nn.MaxPool1d(3, 2, dilation=2), SIGNAL, math.sqrt(3), peak(SIGNAL, (4,))),
    "max, apart": (nn.MaxPool2d(2), IMAGE, 1.0, peak(IMAGE, (3, 3))),
    "max, ceil": (nn.MaxPool1d(3, 2, ceil_mode=True), (2, 8), math.sqrt(2), peak((2, 8), (2,))),
    "adaptive max": (nn.AdaptiveMaxPool1d(3), (2, 4), math.sqrt(2), peak((2, 4), (1,))),
    "mean, apart": (nn.AvgPool2d(2), IMAGE, 0.5, None),
    "mean, apart, by another number": (nn.AvgPool2d(2, divisor_override=1), IMAGE, 2.0, None),
    "global mean": (nn.AdaptiveAvgPool2d(1), IMAGE, 1 / 6, None),
    "nearest": (nn.Upsample(scale_factor=2), IMAGE, 2.0, None),
    "nearest, uneven": (nn.Upsample(size=(6, 9)), IMAGE, math.sqrt(2), None),
    "reflect": (nn.ReflectionPad1d(2), SIGNAL, math.sqrt(2), None),
    "reflect, on both sides": (nn.ReflectionPad1d(3), (2, 4), math.sqrt(3), None),
    "reflect in 2d": (nn.ReflectionPad2d(1), IMAGE, 2.0, None),
    "replicate": (nn.ReplicationPad1d((3, 0)), SIGNAL, 2.0, None),
    "replicate in 2d": (nn.ReplicationPad2d(2), IMAGE, 3.0, None),
    "circular": (nn.CircularPad1d(4), SIGNAL, math.sqrt(2), None),
    "zeros": (nn.ZeroPad2d(2), IMAGE, 1.0, None),
    "constants": (nn.ConstantPad1d(2, 7.0), SIGNAL, 1.0, None),
    "repeated": (Function(lambda x: x.repeat(1, 1, 4)), SIGNAL, 2.0, None),
    "expanded": (Function(lambda x: x[..., None].expand(*x.shape, 9)), SIGNAL, 3.0, None),
    "beside itself": (Function(lambda x: torch.cat([x, x, x], dim=1)), SIGNAL, math.sqrt(3), None),
    "windows": (Function(lambda x: x.unfold(2, 4, 1)), SIGNAL, 2.0, None),
    "mean": (Function(lambda x: x.mean(dim=2)), SIGNAL, 1 / 3, None),
    "sum": (Function(lambda x: x.sum(dim=2)), SIGNAL, 3.0, None),
    "flip and turn": (Function(lambda x: x.flip(1).transpose(1, 2).roll(2, 1)), SIGNAL, 1.0, None),
    "pixel shuffle": (nn.PixelShuffle(2), (4, 3, 3), 1.0, None),
    "largest": (Function(lambda x: x.amax(dim=2)), SIGNAL, 1.0, peak(SIGNAL, (4,))),
    "length": (Function(lambda x: x.norm(dim=2)), SIGNAL, 1.0, peak(SIGNAL, (4,)) + 0.1),
    "softmax": (nn.Softmax(dim=2), (1, 2), 0.5, torch.zeros(1, 2, dtype=torch.float64)),
}
SAFE = {
    "mean, overlap": (nn.AvgPool1d(3, 1), SIGNAL),
    "mean, overlap, border": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "mean, overlap, ceil": (nn.AvgPool1d(4, 3, 1, ceil_mode=True), SIGNAL),
    "mean, overlap, by another number": (nn.AvgPool2d(3, 1, divisor_override=2), IMAGE),
    "adaptive mean": (nn.AdaptiveAvgPool2d((4, 5)), IMAGE),
    "adaptive max in 2d": (nn.AdaptiveMaxPool2d((4, 5)), IMAGE),
    "linear": (nn.Upsample(scale_factor=3, mode="linear"), SIGNAL),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "bilinear, corners": (nn.Upsample(size=(9, 4), mode="bilinear", align_corners=True), IMAGE),
    "logsumexp": (Function(lambda x: x.logsumexp(dim=2)), SIGNAL),
    "softmax of many": (nn.Softmax(dim=2), SIGNAL),
}


def after_units(operation, shape):
    """The operation on units: a layer that is the identity comes first."""
    kind = nn.Conv2d if len(shape) == 3 else nn.Conv1d
    layer = kind(shape[0], shape[0], 1, bias=False)
    nn.init.dirac_(layer.weight)
    return nn.Sequential(layer, operation)


@pytest.mark.parametrize("name", EXACT)
def test_the_constant_where_it_is_known(name):
    operation, shape, constant, reached = EXACT[name]
    model, example = after_units(operation, shape), torch.randn(1, *shape)
    assert bound_of(model, example) == pytest.approx(constant, rel=1e-5)
    assert steepest(model, shape) <= constant * (1 + 1e-6)
    there = torch.randn(shape, dtype=torch.float64) if reached is None else reached
    assert slope_at(model, there) == pytest.approx(constant, rel=1e-5)
    alone = bound_of(nn.Sequential(operation).float(), example)
    if name == "adaptive max":  # of the input itself, places cannot be told from values
        assert alone is None
    else:  # factors below one are not taken off the input
        assert alone == pytest.approx(max(1.0, constant), rel=1e-5)


@pytest.mark.parametrize("name", SAFE)
def test_never_steeper_than_the_bound(name):
    operation, shape = SAFE[name]
    models = (after_units(operation, shape), nn.Sequential(operation))
    for model in models[:1] if "adaptive max" in name else models:
        bound = bound_of(model.float(), torch.randn(1, *shape))
        steep = steepest(model, shape)
        assert steep <= bound * (1 + 1e-6) and bound < 2.5 * max(1.0, steep)


UNKNOWN = {
    "bicubic": (nn.Upsample(scale_factor=2, mode="bicubic"), IMAGE),
    "a norm by other powers": (Function(lambda x: x.norm(p=3, dim=2)), SIGNAL),
    "running sums": (Function(lambda x: x.cumsum(2)), SIGNAL),
    "picked twice": (Function(lambda x: x[:, :, [0, 0, 1]]), SIGNAL),
    "product": (Function(lambda x: x.prod(dim=2)), SIGNAL),
    "the place of the largest": (Function(lambda x: F.adaptive_max_pool1d(x, 2, return_indices=True)[1] * 1.0), SIGNAL),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_says_so(name):
    operation, shape = UNKNOWN[name]
    for model in (after_units(operation, shape), nn.Sequential(operation)):
        assert bound_of(model, torch.randn(1, *shape)) is None
