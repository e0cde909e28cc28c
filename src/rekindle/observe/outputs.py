"""What the outputs of submodules depend on. Hooks are always removed; nothing is written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.errors import PlanError
from rekindle.graph.calls.containers import map_tensors
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.export import at_rest
from rekindle.graph.modules import call_with, main_output, modules_of, parameters_of, submodule
from rekindle.graph.names import canonical


def upstream_of(model: nn.Module, paths: Sequence[str], batch: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Return the parameters that the outputs of submodules depend on, and the modules that they come through.

    This asks autograd, so that residual, parallel and functional ways need no special knowledge. Only modules that have
    buffers are looked at.
    """
    outputs: dict[str, list[Tensor]] = {path: [] for path in paths}
    passed: dict[str, list[Tensor]] = {name: [] for name, m in modules_of(model).items() if name and m._buffers}
    parameters = parameters_of(model)
    leaves = {name: p.detach().clone().requires_grad_(p.is_floating_point()) for name, p in parameters.items()}
    own = {name: buffer.clone() for name, buffer in buffers_of(model)}
    # The output itself is a copy, because the next operation may work in place; what it came through must not be one.
    listeners = {path: _keep(outputs[path], copied=True) for path in paths}
    listeners |= {name: _keep(kept, copied=False) for name, kept in passed.items() if name not in listeners}
    with at_rest(model), torch.enable_grad(), _listening(model, listeners):
        run(model, {**own, **leaves}, batch)
    for path in paths:
        check_called(path, outputs[path])
    total = torch.stack([out.sum() for kept in outputs.values() for out in kept]).sum()
    reached = _reached(total, {name: [leaf] for name, leaf in leaves.items()})
    return reached, _reached(total, passed) | frozenset(paths)


def buffers_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers of a model with their canonical names."""
    yield from ((canonical(name), buffer) for name, buffer in model.named_buffers())


def _keep(kept: list[Tensor], *, copied: bool) -> Callable[[Any], None]:
    def listen(output: Any) -> None:
        if copied:
            kept.append(main_output(output).clone())
        elif isinstance(output, Tensor):
            kept.append(output)

    return listen


def _reached(total: Tensor, candidates: Mapping[str, Sequence[Tensor]]) -> frozenset[str]:
    pairs = [(name, tensor) for name, tensors in candidates.items() for tensor in tensors if tensor.requires_grad]
    if not pairs or not total.requires_grad:
        return frozenset()
    gradients = torch.autograd.grad(total, [tensor for _, tensor in pairs], retain_graph=True, allow_unused=True)
    return frozenset(name for (name, _), gradient in zip(pairs, gradients, strict=True) if gradient is not None)


@contextlib.contextmanager
def _listening(model: nn.Module, listeners: Mapping[str, Callable[[Any], None]]) -> Iterator[None]:
    """Call each listener with the raw output of its module, before any other hook changes it."""

    def hook(listen: Callable[[Any], None]) -> Callable[..., None]:
        return lambda module, args, output: listen(output)

    handles = []
    try:
        for path, listen in listeners.items():
            handles.append(submodule(model, path).register_forward_hook(hook(listen), prepend=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def run(model: nn.Module, tensors: Mapping[str, Tensor], batch: Any) -> Any:
    """Return what a model gives for a batch with other tensors in place of its own.

    Raises:
        PlanError: The model does not run on it.
    """
    args, kwargs = _as_the_model_takes_it(model, tuple(as_call(model, batch)))
    try:
        return call_with(model, tensors, args, kwargs)
    except PlanError:
        raise
    except Exception as error:
        raise PlanError(
            expected="a batch that the model runs on, of more than one element where it has BatchNorm",
            got=f"{type(error).__name__}: {error}",
            fix="pass a batch of the training data, as the model takes it",
        ) from error


def _as_the_model_takes_it(model: nn.Module, batch: Any) -> Any:
    """Move a batch to the model's device, and floats to its type where it has only one."""
    kinds = {(parameter.device, parameter.dtype) for parameter in model.parameters() if parameter.is_floating_point()}
    if len(kinds) != 1:
        return batch
    ((device, dtype),) = kinds
    return map_tensors(lambda t: t.to(device, dtype if t.is_floating_point() else t.dtype), batch)


def check_called(path: str, found: Sequence[Tensor]) -> None:
    """Raise where a module was not called.

    Raises:
        PlanError: Nothing was found.
    """
    if not found:
        raise PlanError(
            expected=f"a module at {path!r} that the model calls",
            got="no call of it on this batch",
            fix="name a module that takes part in the forward pass (a ModuleList itself does not)",
        )
