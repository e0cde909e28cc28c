"""MethodState statistics of normalization layers: when they are stale, and what they should be."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from rekindle.graph import Group, UnitGraph
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.modules import modules_of
from rekindle.graph.names import STATISTICS
from rekindle.graph.unwrap import bare
from rekindle.observe.batches import inputs_of
from rekindle.observe.gradients import Data
from rekindle.observe.visit import batches_of, device_of, visit

STALE = "BatchNorm statistics are stale: run rk.recalibrate_(model, data)"


@dataclass(frozen=True, eq=False)
class Statistics:
    """What running statistics should be for given data.

    Attributes:
        values: By the name of the buffer.
        missing: Layers that no batch reached.
        batches: Number of batches.
    """

    values: dict[str, Tensor]
    missing: tuple[str, ...]
    batches: int


def running_statistics(model: nn.Module, data: Data, *, batches: int | None = None, seed: int = 0) -> Statistics:
    """Return mean and variance of what every BatchNorm layer sees, averaged over the batches of the data.

    The model runs in training mode, so that each layer sees what the layers before it make of the same batch. Mean and
    unbiased variance of each batch count the same, as torch does with momentum=None. The model is left as it was.

    Example:
        >>> found = running_statistics(nn.BatchNorm1d(1), [torch.tensor([[1.0], [3.0]])])
        >>> {name: float(value) for name, value in found.values.items()}
        {'running_mean': 2.0, 'running_var': 2.0, 'num_batches_tracked': 1.0}
    """
    model = bare(model)
    layers = {path: module for path, module in modules_of(model).items() if tracks(module)}
    seen = 0
    with visit(model, seed, "statistics", everywhere=True), torch.no_grad(), _cumulative(layers) as calls:
        for batch in islice(batches_of(data, device_of(model.parameters()), "recalibrate_"), batches):
            args, kwargs = as_call(model, inputs_of(batch))
            model(*args, **kwargs)
            seen += 1
        values = {
            f"{path}.{name}" if path else name: tensor
            for path, layer in layers.items()
            for name, tensor in layer._buffers.items()
            if calls[path] and name in STATISTICS and tensor is not None
        }
    return Statistics(values, tuple(path for path in layers if not calls[path]), seen)


def tracks(module: nn.Module) -> bool:
    """Tell whether a module has running statistics that its forward pass in training mode updates."""
    return isinstance(module, _NormBase) and module.running_mean is not None and module.running_var is not None


@contextlib.contextmanager
def _cumulative(layers: dict[str, Any]) -> Iterator[dict[str, int]]:
    """Let layers start from nothing and average over their calls; yields the number of calls by path."""
    calls = dict.fromkeys(layers, 0)
    momenta = {path: layer.momentum for path, layer in layers.items()}
    hooks = []
    try:
        for path, layer in layers.items():
            for name in STATISTICS:
                if layer._buffers.get(name) is not None:  # these are copies, see `visit`
                    layer._buffers[name] = torch.zeros_like(layer._buffers[name])

            def count(module: Any, _: Any, path: str = path) -> None:
                calls[path] += 1
                module.momentum = 1 / calls[path]

            hooks.append(layer.register_forward_pre_hook(count))
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
        for path, layer in layers.items():
            layer.momentum = momenta[path]


def stale(graph: UnitGraph, edited: Collection[str]) -> bool:
    """Tell whether edits of these tensors leave running statistics behind that no longer fit.

    They do where a changed unit reaches a normalization with statistics which were not edited themselves. Where the
    graph does not say (a scanned model, a part that was not understood), the answer is yes.
    """
    running = {n for n in graph.statistics() if n.endswith(("running_mean", "running_var"))} - set(edited)
    changed = set(edited) & set(graph.parameters)
    if not running or not changed:
        return False
    known = {slot.tensor for group in graph.groups for slot in (*group.incoming, *group.norms, *group.outgoing)}
    if not changed <= known or not running <= known:
        return True
    reached = _downstream(graph, changed)
    return any(slot.tensor in running for group in graph.groups if group.name in reached for slot in group.norms)


def _downstream(graph: UnitGraph, changed: set[str]) -> set[str]:
    """Return the names of the groups whose values change with these tensors, before their own normalization."""
    writers: dict[str, list[str]] = {}  # tensor -> groups that it writes
    for group in graph.groups:
        for slot in _writes(group):
            writers.setdefault(slot, []).append(group.name)
    after = {
        group.name: [name for slot in group.outgoing for name in writers.get(slot.tensor, ())] + list(group.through)
        for group in graph.groups
    }
    everything = list(after)  # what a score mixes is not written down: it may be anything
    after.update({group.name: everything for group in graph.groups if group.kind == "score"})
    scaled = [g.name for g in graph.groups if changed & {slot.tensor for slot in g.norms}]
    waiting = [name for tensor in changed for name in writers.get(tensor, ())]
    waiting += [name for group in scaled for name in after[group]]  # a scale comes after its own statistics
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += after[name]
    return reached


def _writes(group: Group) -> set[str]:
    """Return the tensors that write a group; in attention scores the rows of keys stand on the outgoing side."""
    slots = (*group.incoming, *group.outgoing) if group.kind == "score" else group.incoming
    return {slot.tensor for slot in slots}
