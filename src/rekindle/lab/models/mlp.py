"""A multilayer perceptron."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn

from rekindle.lab.models.initial import LINEAR, Init


class MLP(nn.Module):
    """Linear layers with an activation between them; images are flattened first.

    Args:
        sizes: Input size, hidden sizes, output size.
        bias: Whether the linear layers have a bias.
        activation: Makes the module placed after every layer but the last.
        init: How weights start, and how methods draw them afresh: torch's own uniform initializer, or Glorot uniform or
            He normal with zero biases.

    Example:
        >>> import torch
        >>> MLP([784, 100, 100, 10])(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        bias: bool = True,
        activation: Callable[[], nn.Module] = nn.ReLU,
        init: Init = "torch",
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LINEAR[init](i, o, bias=bias) for i, o in pairwise(sizes))
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs to logits."""
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)
