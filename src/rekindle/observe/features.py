"""One pass over data in evaluation mode, with listeners at chosen modules. Hooks are always removed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.graph.calls.inputs import as_call
from rekindle.graph.export import at_rest
from rekindle.graph.modules import call_with, submodule
from rekindle.observe.batches import inputs_of
from rekindle.observe.sides import attach
from rekindle.observe.visit import batches_of, device_of, visit

Listener = Callable[[Tensor], None]  # is given what a module takes in
Finish = Callable[[Any, Any], None]  # (batch, the model's output), after each batch


@contextlib.contextmanager
def resting(model: nn.Module, seed: int, reason: str) -> Iterator[None]:
    """Let a model run in evaluation mode on copies of its buffers, with generators of its own; then all is put back."""
    with visit(model, seed, reason), at_rest(model):
        yield


def pass_over(
    model: nn.Module,
    data: Any,
    listeners: Mapping[tuple[str, str], Listener],
    finish: Finish,
    *,
    seed: int = 0,
    replaced: Mapping[str, Tensor] | None = None,
) -> int:
    """Run the model once over the data, without gradients, and return the number of batches.

    Args:
        model: The model; it is left as it was, whatever happens.
        data: Batches: (inputs, targets), dicts of the model's arguments, or tensors.
        listeners: By path of a module and side of it (see `observe.sides`); called with the tensor that is seen there.
        finish: Called after each batch, with the batch and the model's output.
        seed: Seed of a DataLoader's shuffling.
        replaced: Values to use instead of the model's own, by name.
    """
    number = 0
    with resting(model, seed, "features"), torch.no_grad(), _listening(model, listeners):
        for batch in batches_of(data, device_of(model.parameters()), "features"):
            args, kwargs = as_call(model, inputs_of(batch))
            output = call_with(model, replaced, args, kwargs) if replaced else model(*args, **kwargs)
            finish(batch, output)
            number += 1
    return number


@contextlib.contextmanager
def _listening(model: nn.Module, listeners: Mapping[tuple[str, str], Listener]) -> Iterator[None]:
    def looking(listen: Listener) -> Any:
        def look(module: nn.Module, take: Callable[[], Tensor | None]) -> None:
            if (x := take()) is not None and x.is_floating_point():
                listen(x.detach())

        return look

    handles = []
    try:
        for (path, side), listen in listeners.items():
            handles.append(attach(submodule(model, path), side, looking(listen)))
        yield
    finally:
        for handle in handles:
            handle.remove()
