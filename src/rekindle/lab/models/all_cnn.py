"""All-CNN: convolutions only, pooling by stride, classes by average (Springenberg et al. 2014, All-CNN-C)."""

from torch import Tensor, nn

LAYERS = ((96, 3, 1), (96, 3, 1), (96, 3, 2), (192, 3, 1), (192, 3, 1), (192, 3, 2), (192, 3, 1), (192, 1, 1))


class AllCNN(nn.Module):
    """Eight convolutions with BatchNorm and ReLU, one that writes a map for each class, and its average.

    Args:
        classes: Number of outputs.
        in_channels: Channels of the image.
        width: Divides every number of channels, for a network of the same shape that fits a laptop.
        batch_norm: Normalize after each convolution but the last. The original has none; the frozen-weights experiments
            tell of norm scales in it.

    Example:
        >>> import torch
        >>> AllCNN(10, width=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, classes: int = 10, in_channels: int = 3, width: int = 1, batch_norm: bool = True) -> None:
        super().__init__()
        features: list[nn.Module] = []
        for wanted, kernel, stride in LAYERS:
            channels = max(1, wanted // width)
            features.append(nn.Conv2d(in_channels, channels, kernel, stride, kernel // 2, bias=not batch_norm))
            features.extend([nn.BatchNorm2d(channels)] if batch_norm else [])
            features.append(nn.ReLU())
            in_channels = channels
        self.features = nn.Sequential(*features)
        self.head = nn.Conv2d(in_channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        return self.head(self.features(x)).mean((2, 3))
