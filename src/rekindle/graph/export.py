"""From a module to the operations that it really computes, with `torch.export`.

Why export and not `torch.fx`: it runs the model's own Python on fake tensors, so that data-independent control flow,
functional calls, packed attention and foreign libraries need no rewriting, keeps linear, convolution, normalization and
attention as single nodes with shapes, and tells for each node which parameter and which module it comes from.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from rekindle.errors import GraphError
from rekindle.graph.modules import tensors_of
from rekindle.graph.names import canonical
from rekindle.graph.unwrap import as_written


def as_call(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments for an example: a tensor, a tuple of arguments, or a dict of them."""
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    return (example,), {}


def export(model: nn.Module, example: Any) -> torch.export.ExportedProgram:
    """Return the exported program of a model in evaluation mode; the model is left as it was.

    Raises:
        GraphError: The model cannot be exported with this example.
    """
    args, kwargs = as_call(example)
    with at_rest(model), _quiet():
        try:
            return torch.export.export(model, args, kwargs, strict=False)
        except Exception as error:
            raise GraphError(
                expected="a model whose forward pass torch.export can follow with this example",
                got=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}",
                fix="check that model(example) runs as it stands; control flow that depends on the data must move out "
                "of forward, or give the submodule without it",
            ) from error


@contextlib.contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, not compiled, without cache and attention's fast path; then put all back."""
    training = [(module, module.training) for module in model.modules()]
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    configs = [config for config in configs if getattr(config, "use_cache", False) is True]
    fast_path = torch.backends.mha.get_fastpath_enabled()
    try:
        for module, _ in training:
            module.training = False
        for config in configs:
            config.use_cache = False
        torch.backends.mha.set_fastpath_enabled(False)
        with as_written(model):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for config in configs:
            config.use_cache = True
        for module, mode in training:
            module.training = mode


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("torch.export")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def canonical_names(model: nn.Module) -> dict[str, str]:
    """Return for every name of a parameter or buffer, without wrappers, the first name of the same tensor."""
    first: dict[int, str] = {}
    every = tensors_of(model, remove_duplicate=False)
    return {name: first.setdefault(id(tensor), name) for name, tensor in every.items()}


def first_name(names: Mapping[str, str], stored: str) -> str:
    """Return the canonical name of a tensor that a model has under a name of its own."""
    return names.get(canonical(stored), canonical(stored))


def aliases_of(names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for each canonical name the other names of the same tensor."""
    aliases: dict[str, tuple[str, ...]] = {}
    for name, first in names.items():
        if name != first:
            aliases[first] = (*aliases.get(first, ()), name)
    return aliases
