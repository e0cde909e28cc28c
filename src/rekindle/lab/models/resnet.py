"""Residual networks with basic and bottleneck blocks (He et al. 2015)."""

from collections.abc import Sequence

from torch import Tensor, nn


def projection(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """Identity where the shapes agree, else a strided 1x1 convolution with BatchNorm."""
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which the input is added."""

    expansion = 1

    def __init__(self, in_channels: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = projection(in_channels, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut."""
        branch = self.bn1(self.conv1(x)).relu()
        branch = self.bn2(self.conv2(branch))
        return (branch + self.shortcut(x)).relu()


class Bottleneck(nn.Module):
    """1x1 to few channels, 3x3, 1x1 to four times as many; the stride is on the 3x3."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        out_channels = channels * self.expansion
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.shortcut = projection(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut."""
        branch = self.bn1(self.conv1(x)).relu()
        branch = self.bn2(self.conv2(branch)).relu()
        branch = self.bn3(self.conv3(branch))
        return (branch + self.shortcut(x)).relu()


class ResNet(nn.Module):
    """A stem, stages of residual blocks, global average pooling and a linear head.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        depths: Blocks per stage; every stage but the first halves the resolution.
        widths: Channels per stage, before the block's expansion.
        stem_channels: Channels of the first convolution.
        classes: Number of outputs.
        in_channels: Channels of the image.
        imagenet_stem: 7x7 stride 2 and max-pooling, instead of 3x3 stride 1 for small images.
        dropout: Dropout probability before the head while training.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int],
        stem_channels: int = 64,
        classes: int = 10,
        in_channels: int = 3,
        imagenet_stem: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        kernel, stride = (7, 2) if imagenet_stem else (3, 1)
        self.conv = nn.Conv2d(in_channels, stem_channels, kernel, stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(stem_channels)
        self.pool = nn.MaxPool2d(3, 2, padding=1) if imagenet_stem else nn.Identity()
        self.stages = nn.ModuleList()
        channels = stem_channels
        for position, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            blocks = []
            for i in range(depth):
                blocks.append(block(channels, width, stride=2 if position > 0 and i == 0 else 1))
                channels = width * block.expansion
            self.stages.append(nn.Sequential(*blocks))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = self.pool(self.bn(self.conv(x)).relu())
        for stage in self.stages:
            x = stage(x)
        return self.head(self.dropout(self.average(x).flatten(1)))


def ResNet18(classes: int = 10, in_channels: int = 3, width: int = 64) -> ResNet:
    """ResNet-18 for small images: 3x3 stem of stride 1 without max-pooling.

    Args:
        classes: Number of outputs.
        in_channels: Channels of the image.
        width: Channels of the first stage; the later ones double.
    """
    widths = [width * 2**i for i in range(4)]
    return ResNet(BasicBlock, (2, 2, 2, 2), widths, width, classes, in_channels)


def ResNet50(classes: int = 1000, in_channels: int = 3, width: int = 64) -> ResNet:
    """ResNet-50 with the ImageNet stem: 7x7 of stride 2 and max-pooling.

    Args:
        classes: Number of outputs.
        in_channels: Channels of the image.
        width: Channels of the first stage's bottlenecks; the later ones double.
    """
    widths = [width * 2**i for i in range(4)]
    return ResNet(Bottleneck, (3, 4, 6, 3), widths, width, classes, in_channels, imagenet_stem=True)
