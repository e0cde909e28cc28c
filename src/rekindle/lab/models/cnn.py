"""The small convolutional network of the soft-weight-rescaling experiments, with and without BatchNorm."""

from torch import Tensor, nn


class CNN(nn.Module):
    """Two 5x5 convolutions, each with ReLU and 2x2 max-pooling, then one hidden layer.

    The paper gives kernel, channels and hidden units; unpadded convolutions and 2x2 pooling are our reading.

    Args:
        classes: Number of outputs.
        in_channels: Channels of the image.
        image_size: Height and width of the image.
        channels: Channels of both convolutions.
        hidden: Units of the fully connected layer.
        batch_norm: Normalize after each convolution (the paper's CNN-BN).

    Example:
        >>> import torch
        >>> CNN(10, in_channels=1, image_size=28)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        channels: int = 16,
        hidden: int = 100,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        side = ((image_size - 4) // 2 - 4) // 2
        self.conv1 = nn.Conv2d(in_channels, channels, 5)
        self.norm1 = nn.BatchNorm2d(channels) if batch_norm else nn.Identity()
        self.conv2 = nn.Conv2d(channels, channels, 5)
        self.norm2 = nn.BatchNorm2d(channels) if batch_norm else nn.Identity()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(channels * side**2, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = self.pool(self.norm1(self.conv1(x))).relu()  # the same as pooling after ReLU, at a quarter of its cost
        x = self.pool(self.norm2(self.conv2(x))).relu()
        return self.head(self.fc(x.flatten(1)).relu())


def CNN_BN(classes: int = 10, in_channels: int = 3, image_size: int = 32, channels: int = 16, hidden: int = 100) -> CNN:
    """The same network with BatchNorm after each convolution."""
    return CNN(classes, in_channels, image_size, channels, hidden, batch_norm=True)
