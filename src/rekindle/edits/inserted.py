"""What surgery puts into a model. Everything here can be copied and pickled, and its numbers are in the state dict.

A wrapper stands at the place of a module and calls it. A normalization follows a module as a hook - the only one of
ours that stays - because a wrapper would change the names of all parameters below it; its two numbers are buffers.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from rekindle.graph.modules import main_output

MEAN, STD = "rekindle_mean", "rekindle_std"  # buffers of a module that a fixed normalization follows
PARTS = ("frozen", "new", "twin")  # children of a module that stands at the place of another


class Injected(nn.Module):
    """What stands at the place of an injected module: frozen(x) + (new(x) - twin(x)).

    `frozen` and `twin` are always in evaluation mode, so that running statistics in them do not move either.
    """

    def __init__(self, frozen: nn.Module, new: nn.Module, twin: nn.Module) -> None:
        super().__init__()
        self.frozen, self.new, self.twin = frozen, new, twin
        self.training = new.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the frozen output plus what the new part has learned since."""
        outputs = [part(*args, **kwargs) for part in (self.frozen, self.new, self.twin)]
        if isinstance(outputs[0], Tensor):
            return _plus_learned(*outputs)
        return pytree.tree_map(_plus_learned, *outputs)

    def train(self, mode: bool = True) -> Injected:
        """Set the mode of the new part; the others stay in evaluation mode."""
        super().train(mode)
        self.frozen.eval()
        self.twin.eval()
        return self


def _plus_learned(frozen: Any, new: Any, twin: Any) -> Any:
    # The brackets matter: new - twin is exactly zero at first, and zero changes no bit of the frozen output.
    return frozen + (new - twin) if isinstance(frozen, Tensor) and frozen.is_floating_point() else frozen


class FixedNormalization:
    """The hook that standardizes a module's output by the two buffers of the module; it has no state of its own."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Return the output, its first tensor standardized."""
        main = main_output(output)
        normalized = (main - getattr(module, MEAN)) / getattr(module, STD)
        if isinstance(output, Tensor):
            return normalized
        return type(output)([normalized, *output[1:]])


def is_standardized(module: nn.Module) -> bool:
    """Tell whether a fixed normalization follows the module."""
    return any(isinstance(hook, FixedNormalization) for hook in module._forward_hooks.values())
