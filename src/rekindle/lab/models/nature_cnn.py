"""The network of deep Q-learning on Atari (Mnih et al. 2015)."""

from torch import Tensor, nn


class NatureCNN(nn.Module):
    """Three convolutions and one hidden layer, from stacked frames to a value for each action.

    Args:
        classes: Number of outputs: actions.
        in_channels: Stacked frames.
        image_size: Height and width of a frame, at least 36.
        hidden: Units of the fully connected layer.
        width: Divides every number of channels.

    Example:
        >>> import torch
        >>> NatureCNN(6)(torch.zeros(2, 4, 84, 84)).shape
        torch.Size([2, 6])
    """

    def __init__(
        self, classes: int = 18, in_channels: int = 4, image_size: int = 84, hidden: int = 512, width: int = 1
    ) -> None:
        super().__init__()
        first, second = max(1, 32 // width), max(1, 64 // width)
        side = (((image_size - 8) // 4 + 1) - 4) // 2 + 1 - 2
        self.conv1 = nn.Conv2d(in_channels, first, 8, 4)
        self.conv2 = nn.Conv2d(first, second, 4, 2)
        self.conv3 = nn.Conv2d(second, second, 3)
        self.fc = nn.Linear(second * side**2, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map frames to values."""
        x = self.conv2(self.conv1(x).relu()).relu()
        return self.head(self.fc(self.conv3(x).relu().flatten(1)).relu())
