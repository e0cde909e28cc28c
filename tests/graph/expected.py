"""The unit groups of every zoo model, written by hand from its architecture - never from our tracer."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rekindle.lab.models import VGG16, MobileNetV1, ResNet18, ResNet50
from tests.graph import expected_convolutional as convolutional
from tests.graph import expected_dense as dense
from tests.graph import expected_recurrent as recurrent
from tests.graph import expected_tokens as tokens
from tests.graph.expected_notation import G

EXPECTED: dict[str, list[G]] = {
    "mlp": dense.mlp(bias=True),
    "mlp_no_bias": dense.mlp(bias=False),
    "mlp_functional": dense.MLP_FUNCTIONAL,
    "cnn_bn": convolutional.CNN_BN,
    "vgg": convolutional.vgg([[6, 7], [9, 10]], [13, 11], classes=5, positions=4),
    "resnet_basic": convolutional.resnet_basic([2, 1], [7, 11], classes=5),
    "resnet_bottleneck": convolutional.resnet_bottleneck([2, 1], [3, 5], stem=7, classes=6),
    "mobilenet": convolutional.mobilenet(6, [9, 14], classes=3),
    "grouped_conv": convolutional.GROUPED_CONV,
    "densenet": convolutional.DENSENET,
    "conv1d": convolutional.CONV1D,
    "conv3d": convolutional.CONV3D,
    "conv_transpose": convolutional.CONV_TRANSPOSE,
    "layer_norm_mlp": dense.LAYER_NORM_MLP,
    "group_norm_cnn": convolutional.GROUP_NORM_CNN,
    "rms_norm_mlp": dense.RMS_NORM_MLP,
    "squeeze_excite": convolutional.SQUEEZE_EXCITE,
    "mixer": tokens.MIXER,
    "vit_separate": tokens.VIT_SEPARATE,
    "vit_fused": tokens.VIT_FUSED,
    "vit_mha": tokens.VIT_MHA,
    "transformer_encoder": tokens.TRANSFORMER_ENCODER,
    "gpt": tokens.gpt("", transposed=False),
    "gpt2": tokens.gpt("transformer.", transposed=True),
    "llama": tokens.LLAMA,
    "shared_module": dense.SHARED_MODULE,
    "tied_autoencoder": dense.TIED_AUTOENCODER,
    "weight_norm_mlp": dense.WEIGHT_NORM_MLP,
    "dueling": convolutional.DUELING,
    "lstm_classifier": recurrent.LSTM_CLASSIFIER,
    "gru_cells": recurrent.GRU_CELLS,
    "relu_rnn": recurrent.RELU_RNN,
}


class FullSize(NamedTuple):
    build: Callable[[], nn.Module]
    example: Tensor
    groups: list[G]


VGG16_STAGES = [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3]
MOBILENET_WIDTHS = [64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]
WIDTHS = [64, 128, 256, 512]
FULL_SIZE: dict[str, FullSize] = {
    "VGG16": FullSize(
        VGG16, torch.zeros(1, 3, 64, 64), convolutional.vgg(VGG16_STAGES, [4096, 4096], classes=200, positions=4)
    ),
    "ResNet18": FullSize(ResNet18, torch.zeros(1, 3, 32, 32), convolutional.resnet_basic([2] * 4, WIDTHS, classes=10)),
    "ResNet50": FullSize(
        ResNet50,
        torch.zeros(1, 3, 64, 64),
        convolutional.resnet_bottleneck([3, 4, 6, 3], WIDTHS, stem=64, classes=1000),
    ),
    "MobileNetV1": FullSize(
        MobileNetV1, torch.zeros(1, 3, 64, 64), convolutional.mobilenet(32, MOBILENET_WIDTHS, classes=1000)
    ),
}
