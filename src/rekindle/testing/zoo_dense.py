"""Dense zoo networks: bare parameters, normalization, shared and tied weights, and two we cannot read."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class FunctionalMLP(nn.Module):
    """No modules inside: `F.linear` on parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(7, 5) * 0.5)
        self.b1 = nn.Parameter(torch.zeros(7))
        self.w2 = nn.Parameter(torch.randn(11, 7) * 0.4)
        self.b2 = nn.Parameter(torch.zeros(11))
        self.w3 = nn.Parameter(torch.randn(3, 11) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors to logits."""
        x = F.relu(F.linear(x, self.w1, self.b1))
        x = F.relu(F.linear(x, self.w2, self.b2))
        return F.linear(x, self.w3)


class LayerNormMLP(nn.Module):
    """LayerNorm between each linear layer and its activation."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(5, 7)
        self.norm1 = nn.LayerNorm(7)
        self.fc2 = nn.Linear(7, 11)
        self.norm2 = nn.LayerNorm(11)
        self.head = nn.Linear(11, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors to logits."""
        x = self.norm1(self.fc1(x)).relu()
        x = self.norm2(self.fc2(x)).relu()
        return self.head(x)


class RMSNormMLP(nn.Module):
    """Two pre-norm residual branches on a stream of width 10."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 10)
        self.norms = nn.ModuleList(nn.RMSNorm(10) for _ in range(2))
        self.up = nn.ModuleList([nn.Linear(10, 7), nn.Linear(10, 13)])
        self.down = nn.ModuleList([nn.Linear(7, 10), nn.Linear(13, 10)])
        self.norm = nn.RMSNorm(10)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors to logits."""
        x = self.embed(x)
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            x = x + down(F.silu(up(norm(x))))
        return self.head(self.norm(x))


class SharedModule(nn.Module):
    """One square layer applied twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(5, 7)
        self.shared = nn.Linear(7, 7)
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors to logits."""
        x = self.stem(x).relu()
        x = self.shared(x).relu()
        x = self.shared(x).relu()
        return self.head(x)


class TiedAutoencoder(nn.Module):
    """The decoder's weight is the encoder's, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(9, 5)
        self.decoder_bias = nn.Parameter(torch.zeros(9))

    def forward(self, x: Tensor) -> Tensor:
        """Reconstruct vectors."""
        h = self.encoder(x).relu()
        return F.linear(h, self.encoder.weight.t(), self.decoder_bias)


class WeightNormMLP(nn.Module):
    """A convolution and a linear layer whose weights are a length times a direction."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = weight_norm(nn.Conv2d(3, 7, 3))
        self.fc = weight_norm(nn.Linear(7 * 4, 11))
        self.head = nn.Linear(11, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map 6x6 images to logits."""
        x = F.max_pool2d(self.conv(x).relu(), 2)
        return self.head(self.fc(x.flatten(1)).relu())


class UnknownLayer(nn.Module):
    """A bilinear form of hidden units: a layer with weights whose meaning for units is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 7)
        self.bilinear = nn.Bilinear(7, 7, 11)
        self.head = nn.Linear(11, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors to logits."""
        x = self.fc(x).relu()
        return self.head(self.bilinear(x, x).relu())


class UnknownOp(nn.Module):
    """A running sum over hidden units: no unit after it belongs to one unit before it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(5, 7)
        self.fc2 = nn.Linear(7, 11)
        self.head = nn.Linear(11, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors to logits."""
        x = torch.cumsum(self.fc1(x).relu(), dim=1)
        return self.head(self.fc2(x).relu())
