"""A multilayer perceptron."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with an activation between them; images are flattened first.

    Args:
        sizes: Input size, hidden sizes, output size.
        bias: Whether the linear layers have a bias.
        activation: Makes the module placed after every layer but the last.

    Example:
        >>> import torch
        >>> MLP([784, 100, 100, 10])(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, sizes: Sequence[int], bias: bool = True, activation: Callable[[], nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o, bias=bias) for i, o in pairwise(sizes))
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs to logits."""
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)
