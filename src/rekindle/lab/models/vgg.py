"""VGG: stages of 3x3 convolutions and max-pooling, then a wide classifier (Simonyan & Zisserman 2014)."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

VGG16_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG(nn.Module):
    """Convolution stages, each ended by 2x2 max-pooling, flattened into fully connected layers.

    Args:
        stages: Channels of the convolutions, stage by stage.
        hidden: Units of the fully connected hidden layers.
        classes: Number of outputs.
        in_channels: Channels of the image.
        image_size: Height and width of the image.
        batch_norm: Normalize after each convolution.
        dropout: Dropout probability before the last layer while training; 0 leaves the module out.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[int]],
        hidden: Sequence[int],
        classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        batch_norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        features: list[nn.Module] = []
        for stage in stages:
            for channels in stage:
                features.append(nn.Conv2d(in_channels, channels, 3, padding=1))
                features.extend([nn.BatchNorm2d(channels)] if batch_norm else [])
                features.append(nn.ReLU())
                in_channels = channels
            features.append(nn.MaxPool2d(2))
        side = image_size // 2 ** len(stages)
        classifier: list[nn.Module] = []
        for i, o in pairwise([in_channels * side**2, *hidden]):
            classifier += [nn.Linear(i, o), nn.ReLU()]
        classifier += [nn.Dropout(dropout)] if dropout else []
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(*classifier, nn.Linear(hidden[-1], classes))

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        return self.classifier(self.features(x).flatten(1))


def VGG16(
    classes: int = 200,
    in_channels: int = 3,
    image_size: int = 64,
    hidden: int = 4096,
    width: int = 1,
    batch_norm: bool = False,
    dropout: float = 0.0,
) -> VGG:
    """VGG-16 as the papers use it on Tiny ImageNet: 4096 hidden units, no dropout, no BatchNorm.

    Args:
        classes: Number of outputs.
        in_channels: Channels of the image.
        image_size: Height and width of the image, at least 32.
        hidden: Units of the two fully connected hidden layers.
        width: Divides every channel and hidden size, for a network of the same shape that fits a laptop.
        batch_norm: Normalize after each convolution.
        dropout: Dropout probability before the last layer while training.
    """
    stages = [[channels // width for channels in stage] for stage in VGG16_STAGES]
    return VGG(stages, [hidden // width] * 2, classes, in_channels, image_size, batch_norm, dropout)
