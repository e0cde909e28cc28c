"""Networks by spec string: `build("resnet18:width=16", data)` fits input and output to the data."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import nn

from rekindle.errors import SettingsError
from rekindle.lab.models.all_cnn import AllCNN
from rekindle.lab.models.cnn import CNN, CNN_BN
from rekindle.lab.models.gpt import GPT
from rekindle.lab.models.initial import Init, drawn
from rekindle.lab.models.mlp import MLP
from rekindle.lab.models.mobilenet import BLOCKS, MobileNetV1
from rekindle.lab.models.nature_cnn import NatureCNN
from rekindle.lab.models.norms import Norm, NormOrNone, normed
from rekindle.lab.models.resnet import Bottleneck, ResNet, ResNet18
from rekindle.lab.models.scnn import SCNN
from rekindle.lab.models.simba import SimBa
from rekindle.lab.models.vgg import VGG16
from rekindle.lab.models.vit import ViT
from rekindle.methods.spec import choose, fill


class Shaped(Protocol):
    """What a network must know of data: the shape of one input and the number of classes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""

    @property
    def classes(self) -> int:
        """Number of outputs."""


def _mlp(
    inputs: int, classes: int, hidden: tuple[int, ...] = (100, 100), bias: bool = True, init: Init = "torch"
) -> nn.Module:
    return MLP([inputs, *hidden, classes], bias, init=init)


def _mlp_synthetic(
    inputs: int, classes: int, hidden: tuple[int, ...] = (32, 32), bias: bool = True, init: Init = "torch"
) -> nn.Module:
    return MLP([inputs, *hidden, classes], bias, init=init)


def _simba(inputs: int, classes: int, dim: int = 128, depth: int = 1) -> nn.Module:
    return SimBa(inputs, classes, dim, depth)


def _scnn(
    classes: int,
    in_channels: int,
    image_size: int,
    channels: tuple[int, ...] = (32, 64),
    hidden: int = 512,
    dropout: float = 0.0,
    init: Init = "torch",
) -> nn.Module:
    return drawn(SCNN(classes, in_channels, image_size, channels, hidden, dropout), init)


def _vgg16(
    classes: int,
    in_channels: int,
    image_size: int,
    hidden: int = 4096,
    width: int = 1,
    norm: NormOrNone = "none",
    dropout: float = 0.0,
    init: Init = "torch",
) -> nn.Module:
    made = VGG16(classes, in_channels, image_size, hidden, width, norm != "none", dropout)
    return drawn(normed(made, norm), init)


def _resnet50(
    classes: int,
    in_channels: int,
    width: int = 64,
    imagenet_stem: bool = True,
    norm: Norm = "batch",
    dropout: float = 0.0,
    init: Init = "torch",
) -> nn.Module:
    widths = [width * 2**i for i in range(4)]
    made = ResNet(Bottleneck, (3, 4, 6, 3), widths, width, classes, in_channels, imagenet_stem, dropout)
    return drawn(normed(made, norm), init)


def _mobilenet(
    classes: int,
    in_channels: int,
    width: float = 1.0,
    stem_stride: int = 2,
    shallow: bool = False,
    norm: Norm = "batch",
    dropout: float = 0.0,
    init: Init = "torch",
) -> nn.Module:
    blocks: Sequence[tuple[int, int]] = [b for i, b in enumerate(BLOCKS) if not (shallow and 6 <= i < 11)]
    made = MobileNetV1(classes, in_channels, width, stem_stride=stem_stride, blocks=blocks, dropout=dropout)
    return drawn(normed(made, norm), init)


def _vit(
    classes: int,
    in_channels: int,
    image_size: int,
    patch_size: int = 4,
    dim: int = 192,
    depth: int = 12,
    heads: int = 3,
    attention: str = "separate",
) -> nn.Module:
    return ViT(classes, in_channels, image_size, patch_size, dim, depth, heads, attention=attention)


def _gpt(
    vocabulary: int,
    context: int,
    dim: int = 768,
    depth: int = 12,
    heads: int = 12,
    hidden: int | None = None,
    bias: bool = True,
    dropout: float = 0.0,
    multiple: int = 1,
) -> nn.Module:
    rounded = -(-vocabulary // multiple) * multiple  # 50,304 instead of 50,257 is faster on a GPU
    return GPT(rounded, context, dim, depth, heads, hidden, bias, dropout)


# Names that take vectors (images are flattened), images of any size, square images of a size fixed at the start,
# and token ids.
VECTORS: dict[str, Callable[..., nn.Module]] = {"mlp": _mlp, "mlp_synthetic": _mlp_synthetic, "simba": _simba}
IMAGES: dict[str, Callable[..., nn.Module]] = {
    "resnet18": ResNet18,
    "resnet50": _resnet50,
    "all_cnn": AllCNN,
    "mobilenet": _mobilenet,
}
SIZED: dict[str, Callable[..., nn.Module]] = {
    "cnn": CNN,
    "cnn_bn": CNN_BN,
    "vgg16": _vgg16,
    "scnn": _scnn,
    "vit": _vit,
    "nature_cnn": NatureCNN,
}
TOKENS: dict[str, Callable[..., nn.Module]] = {"gpt": _gpt}
NETWORKS = {**VECTORS, **IMAGES, **SIZED, **TOKENS}
FOR_SMALL_IMAGES = "mlp, resnet18, resnet50:imagenet_stem=false or all_cnn"


def build(spec: str, data: Shaped) -> nn.Module:
    """Build a network for data; its weights are drawn from torch's global generator.

    Args:
        spec: Name and settings: "mlp:hidden=100|100", "cnn", "vgg16:width=8,norm=batch".
        data: Anything with `shape` and `classes`, and with `is_text` if its inputs are tokens, such as what
            `rekindle.lab.data.load` returns.

    Raises:
        SettingsError: There is no such network or setting, or the data do not fit it.

    Example:
        >>> from types import SimpleNamespace
        >>> data = SimpleNamespace(shape=(1, 28, 28), classes=10)
        >>> sum(p.numel() for p in build("mlp:hidden=100|100", data).parameters())
        89610
    """
    name = choose("networks", spec, NETWORKS)
    try:
        made: nn.Module = fill(NETWORKS[name], spec, _fixed(name, data))
    except (RuntimeError, ZeroDivisionError, AssertionError) as error:
        raise _does_not_fit(spec, data, f": {error}") from error
    if any(parameter.numel() == 0 for parameter in made.parameters()):
        raise _does_not_fit(spec, data, "")
    return made


def _fixed(name: str, data: Shaped) -> dict[str, Any]:
    if (name in TOKENS) != getattr(data, "is_text", False):
        raise _does_not_fit(name, data, "; it needs tokens" if name in TOKENS else ", not tokens")
    if name in TOKENS:
        return {"vocabulary": data.classes, "context": data.shape[0]}
    if name in VECTORS:
        return {"inputs": math.prod(data.shape), "classes": data.classes}
    if len(data.shape) != 3 or data.shape[1] != data.shape[2]:
        raise _does_not_fit(name, data, "; it needs square images")
    fixed: dict[str, Any] = {"classes": data.classes, "in_channels": data.shape[0]}
    least = {"cnn": 16, "cnn_bn": 16, "vgg16": 32, "scnn": 4, "nature_cnn": 36, "vit": 4}.get(name, 1)
    if data.shape[1] < least:
        raise _does_not_fit(name, data, f"; it needs at least {least}x{least}")
    return {**fixed, "image_size": data.shape[1]} if name in SIZED else fixed


def _does_not_fit(spec: str, data: Shaped, why: str) -> SettingsError:
    return SettingsError(
        expected=f"data that fit {spec!r}{why}",
        got=f"inputs of shape {tuple(data.shape)}",
        fix=f"take another network or data; small images fit {FOR_SMALL_IMAGES}, text fits {', '.join(TOKENS)}",
    )
