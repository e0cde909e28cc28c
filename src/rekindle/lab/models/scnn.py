"""SCNN: the simple convolutional network of the layerwise reinitialization experiments (Appendix C)."""

from collections.abc import Sequence

from torch import Tensor, nn


class SCNN(nn.Module):
    """Two stages of two normalized 3x3 convolutions and max-pooling, one normalized dense layer, dropout, head.

    Layer normalization over channels and places is GroupNorm with one group, as in the paper. Kernel size and padding
    are our reading. Layers are drawn by torch's own initializer; `build("scnn:init=he", data)` has He's, as the paper.

    Args:
        classes: Number of outputs.
        in_channels: Channels of the image.
        image_size: Height and width of the image.
        channels: Channels of the two stages.
        hidden: Units of the dense layer.
        dropout: Dropout probability before the head while training; the paper's is 0 or 0.25.

    Example:
        >>> import torch
        >>> SCNN(37, image_size=16, hidden=32)(torch.zeros(2, 3, 16, 16)).shape
        torch.Size([2, 37])
    """

    def __init__(
        self,
        classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        channels: Sequence[int] = (32, 64),
        hidden: int = 512,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        features: list[nn.Module] = []
        for wanted in channels:
            for _ in range(2):
                features += [nn.Conv2d(in_channels, wanted, 3, padding=1), nn.GroupNorm(1, wanted), nn.ReLU()]
                in_channels = wanted
            features.append(nn.MaxPool2d(2))
        side = image_size // 2 ** len(channels)
        self.features = nn.Sequential(*features)
        self.dense = nn.Linear(in_channels * side**2, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = self.features(x).flatten(1)
        return self.head(self.dropout(self.norm(self.dense(x)).relu()))
