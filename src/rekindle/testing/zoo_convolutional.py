"""Zoo networks with convolutions: pooling and flattening, groups, concatenation, gates, transposed kernels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class NormalisedCNN(nn.Module):
    """Conv, BatchNorm and ReLU twice, max- then average-pooling, flattened with 2x2 positions left."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 7, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(7)
        self.conv2 = nn.Conv2d(7, 11, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(11)
        self.fc = nn.Linear(11 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Map 8x8 images to logits."""
        x = F.max_pool2d(self.bn1(self.conv1(x)).relu(), 2)
        x = F.avg_pool2d(self.bn2(self.conv2(x)).relu(), 2)
        return self.fc(x.flatten(1))


class GroupedConv(nn.Module):
    """Convolutions in two groups with a channel shuffle between them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 10, 3, padding=1, groups=2)
        self.conv3 = nn.Conv2d(10, 14, 3, padding=1, groups=2)
        self.head = nn.Linear(14, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = self.conv2(self.conv1(x).relu()).relu()
        batch, channels, height, width = x.shape
        x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)
        return self.head(self.conv3(x).relu().mean((2, 3)))


class DenseNet(nn.Module):
    """Each layer reads the normalized concatenation of everything before it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(3, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv1 = nn.Conv2d(6, 4, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(10)
        self.conv2 = nn.Conv2d(10, 5, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(15)
        self.head = nn.Linear(15, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = self.conv0(x)
        x = torch.cat([x, self.conv1(self.bn1(x).relu())], dim=1)
        x = torch.cat([x, self.conv2(self.bn2(x).relu())], dim=1)
        return self.head(self.bn3(x).relu().mean((2, 3)))


class Conv1dNet(nn.Module):
    """Convolutions along a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(3, 7, 3)
        self.conv2 = nn.Conv1d(7, 11, 3)
        self.head = nn.Linear(11 * 3, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences of length 10 to logits."""
        x = self.conv2(self.conv1(x).relu()).relu()
        return self.head(F.max_pool1d(x, 2).flatten(1))


class Conv3dNet(nn.Module):
    """Convolutions over a volume."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(2, 5, 3)
        self.conv2 = nn.Conv3d(5, 7, 2)
        self.head = nn.Linear(7 * 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map 5x5x5 volumes to logits."""
        x = self.conv2(self.conv1(x).relu()).relu()
        return self.head(x.flatten(1))


class ConvTransposeNet(nn.Module):
    """An image autoencoder; one of its transposed convolutions has groups."""

    def __init__(self) -> None:
        super().__init__()
        self.encode1 = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.encode2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.decode1 = nn.ConvTranspose2d(8, 10, 4, stride=2, padding=1, groups=2)
        self.decode2 = nn.ConvTranspose2d(10, 3, 4, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Reconstruct images."""
        x = self.encode2(self.encode1(x).relu()).relu()
        return self.decode2(self.decode1(x).relu())


class GroupNormCNN(nn.Module):
    """GroupNorm after each convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3)
        self.norm1 = nn.GroupNorm(2, 6)
        self.conv2 = nn.Conv2d(6, 10, 3)
        self.norm2 = nn.GroupNorm(5, 10)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = self.norm1(self.conv1(x)).relu()
        x = self.norm2(self.conv2(x)).relu()
        return self.head(x.mean((2, 3)))


class SqueezeExcite(nn.Module):
    """Channels are multiplied by a gate computed from their averages."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.reduce = nn.Linear(8, 5)
        self.expand = nn.Linear(5, 8)
        self.conv2 = nn.Conv2d(8, 11, 3)
        self.head = nn.Linear(11, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = self.bn1(self.conv1(x)).relu()
        gate = self.expand(self.reduce(x.mean((2, 3))).relu()).sigmoid()
        x = self.conv2(x * gate[:, :, None, None]).relu()
        return self.head(x.mean((2, 3)))


class Dueling(nn.Module):
    """Value and advantage streams on one convolutional trunk, as in dueling Q-networks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 7, 3)
        self.conv2 = nn.Conv2d(7, 9, 3)
        self.value_hidden = nn.Linear(9 * 4, 11)
        self.value = nn.Linear(11, 1)
        self.advantage_hidden = nn.Linear(9 * 4, 13)
        self.advantage = nn.Linear(13, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Map 6x6 frames to the values of four actions."""
        x = self.conv2(self.conv1(x).relu()).relu().flatten(1)
        value = self.value(self.value_hidden(x).relu())
        advantage = self.advantage(self.advantage_hidden(x).relu())
        return value + advantage - advantage.mean(1, keepdim=True)
