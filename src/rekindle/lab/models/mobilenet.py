"""MobileNetV1: depthwise and pointwise convolutions instead of full ones (Howard et al. 2017)."""

from collections.abc import Sequence

from torch import Tensor, nn

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


class SeparableBlock(nn.Module):
    """A 3x3 convolution on each channel alone, then a 1x1 convolution that mixes them."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(in_channels, in_channels, 3, stride, padding=1, groups=in_channels, bias=False)
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.pointwise = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Filter, then mix."""
        x = self.bn1(self.depthwise(x)).relu()
        return self.bn2(self.pointwise(x)).relu()


class MobileNetV1(nn.Module):
    """MobileNetV1.

    Args:
        classes: Number of outputs.
        in_channels: Channels of the image.
        width: Multiplies every number of channels.
        stem_channels: Channels of the first convolution, before `width`.
        stem_stride: Stride of the first convolution; 1 suits small images.
        blocks: Channels, before `width`, and stride of each separable block.
        dropout: Dropout probability before the head while training.

    Example:
        >>> import torch
        >>> MobileNetV1(classes=10, width=0.25)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        classes: int = 1000,
        in_channels: int = 3,
        width: float = 1.0,
        stem_channels: int = 32,
        stem_stride: int = 2,
        blocks: Sequence[tuple[int, int]] = BLOCKS,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels = max(1, int(stem_channels * width))
        self.conv = nn.Conv2d(in_channels, channels, 3, stem_stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential()
        for wanted, stride in blocks:
            out_channels = max(1, int(wanted * width))
            self.blocks.append(SeparableBlock(channels, out_channels, stride))
            channels = out_channels
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = self.blocks(self.bn(self.conv(x)).relu())
        return self.head(self.dropout(x.mean((2, 3))))
