"""Small networks, one for each kind of structure a trace has to understand.

Widths differ from layer to layer, so that a wrong pairing cannot pass unnoticed, and every parameter is drawn at random
(also scales, shifts and running statistics of norms), so that no unit looks like its neighbor.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from rekindle.lab.models import GPT, MLP, VGG, BasicBlock, Bottleneck, MobileNetV1, ResNet, ViT
from rekindle.testing import zoo_attention as attention
from rekindle.testing import zoo_convolutional as convolutional
from rekindle.testing import zoo_dense as dense
from rekindle.testing import zoo_recurrent as recurrent


@dataclass(frozen=True, eq=False)  # by identity: what is known of a model is kept under it, whatever its functions are
class ZooModel:
    """A small network and an input for it.

    Attributes:
        name: Key in the zoo.
        build: Makes the network, the same every time; the global generator is left as it was.
        example: Makes a batch for it: a tensor or keyword arguments.
        homogeneous: Without biases, scaling the input by c > 0 scales the output by c: only linear maps, ReLU and
            pooling, no normalization.
        requires: Package that has to be installed.
    """

    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    homogeneous: bool
    requires: str | None = None


def zoo(names: Iterable[str] | None = None) -> list[ZooModel]:
    """Zoo models, without those whose package is missing.

    Args:
        names: Keys of `ZOO`; all of them when None.

    Example:
        >>> [model.name for model in zoo(["mlp", "resnet_basic"])]
        ['mlp', 'resnet_basic']
    """
    members = ZOO.values() if names is None else [ZOO[name] for name in names]
    return [member for member in members if member.requires is None or find_spec(member.requires)]


def _unsettled(model: nn.Module) -> nn.Module:
    """Move every parameter and running statistic away from its initial value, to where most units are active."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
            if parameter.ndim > 1:
                parameter.mul_(2)
            else:
                parameter.add_(0.2)
        for module in model.modules():
            if isinstance(module, _BatchNorm) and module.running_mean is not None and module.running_var is not None:
                module.running_mean.normal_(std=0.1)
                module.running_var.log_normal_(std=0.2)
    return model


def _member(
    name: str,
    build: Callable[[], nn.Module],
    example: Callable[[], Any],
    homogeneous: bool = False,
    requires: str | None = None,
) -> ZooModel:
    """A zoo model whose two functions draw from a generator of their own."""

    def seeded_build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            _seed(0)
            return _unsettled(build())

    def seeded_example() -> Any:
        with torch.random.fork_rng(devices=[]):
            _seed(1)
            return example()

    return ZooModel(name, seeded_build, seeded_example, homogeneous, requires)


def _seed(number: int) -> None:
    """Seed the draws of the CPU; `torch.manual_seed` would note a stack trace for every device, each time."""
    torch.default_generator.manual_seed(number)


def _floats(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(shape)


def _tokens() -> torch.Tensor:
    return torch.randint(17, (4, 6))


def _keywords() -> dict[str, torch.Tensor]:
    return {"input_ids": _tokens()}


def _vit(spelling: str) -> Callable[[], nn.Module]:
    return lambda: ViT(7, image_size=8, patch_size=4, dim=12, depth=2, heads=3, hidden=20, attention=spelling)


_VECTORS, _IMAGES, _SMALL_IMAGES = _floats(16, 5), _floats(16, 3, 8, 8), _floats(16, 3, 6, 6)

ZOO: dict[str, ZooModel] = {
    member.name: member
    for member in (
        _member("mlp", lambda: MLP([5, 7, 11, 3]), _VECTORS, homogeneous=True),
        _member("mlp_no_bias", lambda: MLP([5, 7, 11, 3], bias=False), _VECTORS, homogeneous=True),
        _member("mlp_functional", dense.FunctionalMLP, _VECTORS, homogeneous=True),
        _member("cnn_bn", convolutional.NormalisedCNN, _IMAGES),
        _member("vgg", lambda: VGG([[6, 7], [9, 10]], [13, 11], 5, image_size=8), _IMAGES, homogeneous=True),
        _member("resnet_basic", lambda: ResNet(BasicBlock, (2, 1), (7, 11), 7, 5), _IMAGES),
        _member("resnet_bottleneck", lambda: ResNet(Bottleneck, (2, 1), (3, 5), 7, 6, imagenet_stem=True), _IMAGES),
        _member(
            "mobilenet",
            lambda: MobileNetV1(3, stem_channels=6, stem_stride=1, blocks=((9, 1), (14, 2))),
            _IMAGES,
        ),
        _member("grouped_conv", convolutional.GroupedConv, _SMALL_IMAGES, homogeneous=True),
        _member("densenet", convolutional.DenseNet, _SMALL_IMAGES),
        _member("conv1d", convolutional.Conv1dNet, _floats(16, 3, 10), homogeneous=True),
        _member("conv3d", convolutional.Conv3dNet, _floats(16, 2, 5, 5, 5), homogeneous=True),
        _member("conv_transpose", convolutional.ConvTransposeNet, _IMAGES, homogeneous=True),
        _member("layer_norm_mlp", dense.LayerNormMLP, _VECTORS),
        _member("group_norm_cnn", convolutional.GroupNormCNN, _IMAGES),
        _member("rms_norm_mlp", dense.RMSNormMLP, _VECTORS),
        _member("squeeze_excite", convolutional.SqueezeExcite, _IMAGES),
        _member("mixer", attention.Mixer, _SMALL_IMAGES),
        _member("vit_separate", _vit("separate"), _IMAGES),
        _member("vit_fused", _vit("fused"), _IMAGES),
        _member("vit_mha", _vit("mha"), _IMAGES),
        _member("transformer_encoder", attention.TransformerEncoder, _floats(8, 6, 5)),
        _member("gpt", lambda: GPT(17, context=8, dim=12, depth=2, heads=3, hidden=20), _tokens),
        _member("gpt2", attention.gpt2, _keywords, requires="transformers"),
        _member("llama", attention.llama, _keywords, requires="transformers"),
        _member("shared_module", dense.SharedModule, _VECTORS, homogeneous=True),
        _member("tied_autoencoder", dense.TiedAutoencoder, _floats(16, 9), homogeneous=True),
        _member("weight_norm_mlp", dense.WeightNormMLP, _SMALL_IMAGES, homogeneous=True),
        _member("dueling", convolutional.Dueling, _SMALL_IMAGES, homogeneous=True),
        _member("lstm_classifier", recurrent.LSTMClassifier, _tokens),
        _member("gru_cells", recurrent.GRUCells, _floats(8, 6, 5)),
        _member("relu_rnn", recurrent.ReluRNN, _floats(8, 4, 5), homogeneous=True),
    )
}

NOT_UNDERSTOOD: dict[str, ZooModel] = {
    member.name: member
    for member in (
        _member("unknown_layer", dense.UnknownLayer, _VECTORS),
        _member("unknown_op", dense.UnknownOp, _VECTORS, homogeneous=True),
    )
}
