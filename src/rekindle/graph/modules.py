"""The parts of a live model by their names: modules, tensors, and what a module hands on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

from rekindle.errors import PlanError
from rekindle.graph.names import canonical
from rekindle.graph.unwrap import inside


def parameters_of(model: nn.Module, *, remove_duplicate: bool = True) -> dict[str, nn.Parameter]:
    """Return the parameters of a live model under their canonical names.

    Args:
        model: The model; parts of it may be compiled or wrapped for activation checkpointing.
        remove_duplicate: Leave out the further names of tied tensors.

    Example:
        >>> import torch
        >>> list(parameters_of(nn.Sequential(torch.compile(nn.Linear(2, 2)))))
        ['0.weight', '0.bias']
    """
    return {canonical(name): p for name, p in model.named_parameters(remove_duplicate=remove_duplicate)}


def tensors_of(model: nn.Module, *, remove_duplicate: bool = True) -> dict[str, Tensor]:
    """Return parameters and buffers of a live model under their canonical names."""
    buffers = model.named_buffers(remove_duplicate=remove_duplicate)
    return {**parameters_of(model, remove_duplicate=remove_duplicate), **{canonical(name): b for name, b in buffers}}


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model under their canonical paths: of a wrapper what is inside."""
    return {canonical(path): module for path, module in model.named_modules()}


def stored_names(model: nn.Module) -> dict[str, str]:
    """Return for each canonical name of a tensor the one that the model has it under, as `functional_call` asks for."""
    own = [model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)]
    return {canonical(name): name for each in own for name, _ in each}


def call_with(model: nn.Module, tensors: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run a model with other values for some of its tensors, given under their canonical names."""
    stored = stored_names(model)
    return functional_call(model, {stored.get(name, name): t for name, t in tensors.items()}, args, dict(kwargs))


def submodule(model: nn.Module, path: str) -> nn.Module:
    """Return the module at a canonical path: of a wrapper what is inside.

    Raises:
        PlanError: There is none.
    """
    module: nn.Module | None = inside(model)
    for part in canonical(path).split(".") if path else ():
        module = None if module is None else module._modules.get(part)
        module = None if module is None else inside(module)
    if module is None:
        known = [name for name in modules_of(model) if name]
        near = [name for name in known if name.rpartition(".")[2] == path.rpartition(".")[2]] or known
        raise PlanError(
            expected="the path of a module",
            got=repr(path),
            fix=f"use a name of model.named_modules(), for example {', '.join(near[:5])}",
        )
    return module


def weight_shape(module: nn.Module) -> tuple[int, ...]:
    """Return the shape of a layer's weight; torch's norms of weights, which keep the shape, are not run for it.

    To read the weight under spectral_norm is to run it, and in training mode that moves its buffers.

    Example:
        >>> weight_shape(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)))
        (2, 3)
    """
    held: Any = getattr(module, "parametrizations", {})
    made: Any = held["weight"] if "weight" in held else ()
    kept = made and all(type(each).__name__ in ("_WeightNorm", "_SpectralNorm") for each in made)
    weight: Any = (made.original if hasattr(made, "original") else made.original1) if kept else module.weight
    return tuple(weight.shape)


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
