"""From a module to the operations that it really computes, with `torch.export`.

Why export and not `torch.fx`: it runs the model's own Python on fake tensors, so that data-independent control flow,
functional calls, packed attention and foreign libraries need no rewriting, keeps linear, convolution, normalization and
attention as single nodes with shapes, and tells for each node which parameter and which module it comes from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from rekindle.errors import GraphError
from rekindle.graph.branching.attributes import attributes_kept
from rekindle.graph.branching.stops import (
    BRANCHES,
    NUMBERS,
    OUTSIDE_TORCH,
    SHAPES,
    Stop,
    first_line,
    stop_of_error,
    stop_of_shapes,
)
from rekindle.graph.calls.containers import in_known_containers
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.calls.packed import at_full_length, packed_at_full_length
from rekindle.graph.modules import tensors_of
from rekindle.graph.names import canonical
from rekindle.graph.quiet import quiet
from rekindle.graph.unwrap import as_written
from rekindle.graph.validation import unvalidated

DATA_DEPENDENT = (BRANCHES, NUMBERS, OUTSIDE_TORCH, SHAPES)


def export(model: nn.Module, example: Any) -> torch.export.ExportedProgram:
    """Return the exported program of a model in evaluation mode; the model is left as it was.

    Raises:
        GraphError: The model cannot be exported with this example, or has shapes that only the data tells.
    """
    call = at_full_length(as_call(model, example))
    with prepared(model), in_known_containers(model, call) as (args, kwargs):
        try:
            program = exported(model, args, kwargs)
        except Exception as error:
            raise refusal(stop_of_error(error, model), error) from error
    stop = stop_of_shapes(program)
    if stop is not None:
        raise refusal(stop)
    return program


def exported(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.export.ExportedProgram:
    """Return the program of a module as it stands, or let torch's error through."""
    return torch.export.export(model, args, kwargs, strict=False)


def refusal(stop: Stop, error: BaseException | None = None) -> GraphError:
    """Return the error that says where a forward pass cannot be followed, and what to do."""
    if stop.kind in DATA_DEPENDENT:
        where = f"module {canonical(stop.path)}" if stop.path else "the model's own forward"
        return GraphError(
            expected="a model whose forward pass torch.export can follow: the same operations for all data",
            got=f"{stop.kind} at {stop.place}, in {where}",
            fix="trace with strict=False to leave that part out by name and trace the rest; or move what depends on "
            "the data out of forward, or write it with torch.where, masks or torch.cond",
        )
    told = first_line(error) if error is not None else stop.kind
    place = f" at {stop.place}, in module {canonical(stop.path)}" if stop.path else ""
    return GraphError(
        expected="a model whose forward pass torch.export can follow with this example",
        got=told + place,
        fix="check that model(example) runs as it stands; if it does, trace with strict=False to leave out by name "
        "what cannot be followed, or give the submodule without it",
    )


@contextlib.contextmanager
def prepared(model: nn.Module) -> Iterator[None]:
    """Let a model be run by us: at rest, quiet, without checks that look at values; then all is put back."""
    with at_rest(model), packed_at_full_length(model), attributes_kept(model), unvalidated(), quiet():
        yield


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
