"""The parts of a live model by their names: modules, tensors, and what a module hands on."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from rekindle.errors import PlanError


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers of a live model under their canonical names."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def submodule(model: nn.Module, path: str) -> nn.Module:
    """Return the module at a path.

    Raises:
        PlanError: There is none.
    """
    try:
        return model.get_submodule(path)
    except AttributeError:
        known = [name for name, _ in model.named_modules() if name]
        near = [name for name in known if name.rpartition(".")[2] == path.rpartition(".")[2]] or known
        raise PlanError(
            expected="the path of a module",
            got=repr(path),
            fix=f"use a name of model.named_modules(), for example {', '.join(near[:5])}",
        ) from None


def main_output(output: Any) -> Tensor:
    """Return the tensor that a module hands on: its output, or the first of several.

    Raises:
        PlanError: The output is something else.
    """
    first = output[0] if type(output) in (tuple, list) and output else output
    if not isinstance(first, Tensor) or not first.is_floating_point():
        raise PlanError(
            expected="a module whose output is a tensor of floats, or a tuple that starts with one",
            got=type(first).__name__,
            fix="name a module inside it, or the one after it",
        )
    return first
