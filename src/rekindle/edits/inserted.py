"""What surgery puts into a model. Everything here can be copied and pickled, and its numbers are in the state dict.

A wrapper stands at the place of a module and calls it. A normalization stands before or after a module as a hook - the
only hooks of ours that stay - because a wrapper would change the names of all parameters below it; its two numbers are
buffers, whose names tell the side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from rekindle.edits.surgery import Side
from rekindle.errors import PlanError
from rekindle.graph.modules import main_output

# Buffers of a module that a fixed normalization follows, or that it stands before: mean and standard deviation.
BUFFERS: Mapping[Side, tuple[str, str]] = {
    "after": ("rekindle_mean", "rekindle_std"),
    "before": ("rekindle_input_mean", "rekindle_input_std"),
}
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
        normalized = _standardized(module, main_output(output), "after")
        if isinstance(output, Tensor):
            return normalized
        return type(output)([normalized, *output[1:]])


class FixedInputNormalization:
    """The hook that standardizes what a module reads, its first argument; it has no state of its own."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments, the first one standardized."""
        if not args or not isinstance(args[0], Tensor):
            raise PlanError(
                expected=f"a tensor as first argument of a {type(module).__name__}, for the normalization before it",
                got=type(args[0]).__name__ if args else "no positional argument",
                fix="call it with its input first and not by keyword",
            )
        return (_standardized(module, args[0], "before"), *args[1:])


HOOKS: Mapping[Side, type[FixedNormalization | FixedInputNormalization]] = {
    "after": FixedNormalization,
    "before": FixedInputNormalization,
}


def _standardized(module: nn.Module, x: Tensor, side: Side) -> Tensor:
    mean, std = BUFFERS[side]
    return (x - getattr(module, mean)) / getattr(module, std)


def is_standardized(module: nn.Module, side: Side = "after") -> bool:
    """Tell whether a fixed normalization follows the module, or stands before it."""
    hooks = module._forward_hooks if side == "after" else module._forward_pre_hooks
    return any(isinstance(hook, HOOKS[side]) for hook in hooks.values())
