"""Sizes of a weight, against the layer that it was read from."""

import pytest
import torch
from torch import nn
from torch.nn.init import _calculate_fan_in_and_fan_out

from rekindle.graph import trace
from rekindle.graph.scan import scan

LAYERS = {
    "linear": (nn.Linear(3, 5), torch.ones(1, 3), (1, 5, 3), 1),
    "convolution": (nn.Conv2d(3, 5, (2, 4)), torch.ones(1, 3, 6, 6), (8, 5, 3), 8),
    "grouped": (nn.Conv1d(4, 6, 3, groups=2), torch.ones(1, 4, 6), (6, 3, 2), 3),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), torch.ones(1, 4, 6, 6), (36, 1, 1), 9),
    "transposed": (nn.ConvTranspose1d(3, 5, 2), torch.ones(1, 3, 6), (2, 5, 3), 2),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("how", ["scanned", "traced"])
def test_sizes_kernel_and_fan_in(name, how):
    layer, example, sizes, kernel = LAYERS[name]
    model = nn.Sequential(layer)
    (weight,) = (scan(model) if how == "scanned" else trace(model, example)).weights
    assert weight.sizes == sizes == (weight.batch, weight.out, weight.in_)
    assert weight.kernel == kernel and weight.fan_in == weight.in_ * kernel
    if name != "transposed":  # torch takes its stored [in, out] for [out, in]
        assert weight.fan_in == _calculate_fan_in_and_fan_out(layer.weight)[0]
    assert (weight.tensor, weight.shape) == ("0.weight", tuple(layer.weight.shape))
