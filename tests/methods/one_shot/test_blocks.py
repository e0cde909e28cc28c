"""The blocks of a model, written by hand."""

import pytest
import torch

from rekindle.graph import trace
from rekindle.lab.models import VGG16, MobileNetV1, ResNet18, ResNet50, ViT
from rekindle.methods.one_shot._blocks import find_blocks
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of

BLOCKS = {
    "vgg": (lambda: VGG16(width=32, image_size=32), (2, 3, 32, 32), 13),
    "resnet50": (lambda: ResNet50(width=4), (2, 3, 64, 64), 16),
    "resnet18": (lambda: ResNet18(width=4), (2, 3, 32, 32), 8),
    "vit": (lambda: ViT(dim=12, depth=3, heads=3), (2, 3, 32, 32), 3),
    "mobilenet": (lambda: MobileNetV1(width=0.1), (2, 3, 32, 32), 13),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_those_of_the_paper(name):
    build, shape, count = BLOCKS[name]
    model = build().eval()
    assert len(find_blocks(trace(model, torch.zeros(shape)), model)) == count


FOUND = {
    "mlp": ("layers.0", "layers.1"),
    "cnn_bn": ("bn1", "bn2"),
    "vgg": ("features.1", "features.4", "features.6", "features.9"),
    "resnet_basic": ("stages.0.0", "stages.0.1", "stages.1.0"),
    "mobilenet": ("blocks.0", "blocks.1"),
    "densenet": ("conv0", "conv1", "conv2"),
    "layer_norm_mlp": ("norm1", "norm2"),
    "rms_norm_mlp": ("embed", "up.0", "down.0", "up.1", "down.1"),
    "mixer": ("blocks.0", "blocks.1"),
    "transformer_encoder": ("encoder.layers.0", "encoder.layers.1"),
    "gpt": ("h.0", "h.1"),
    "llama": ("model.layers.0", "model.layers.1"),
    "shared_module": ("stem", "shared"),
    "mlp_functional": (),
}


@pytest.mark.parametrize("name", FOUND)
def test_blocks_of_the_zoo(name):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    model = ZOO[name].build()
    assert find_blocks(graph_of(ZOO[name]), model) == FOUND[name]
