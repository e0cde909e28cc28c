"""The blocks of a model, for methods that go from the bottom to the top."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rekindle.graph import UnitGraph
from rekindle.graph.weight import Weight

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def find_blocks(graph: UnitGraph, model: nn.Module) -> tuple[str, ...]:
    """Return the paths of a model's blocks in order of execution; heads and embeddings are none.

    Blocks are the outermost modules that hold two or more weights and are no containers; a single such module is opened
    up. Where there are none, every convolution is a block; without those, every hidden layer. A layer's block goes on
    to the last module before the next layer, as far as that is known.

    Example:
        >>> import torch
        >>> from rekindle.graph import trace
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> find_blocks(trace(net, torch.zeros(1, 4)), net)
        ('1', '3')
    """
    weights = [weight for weight in graph.weights if weight.role not in ("head", "embedding") and weight.module]
    modules = list(dict.fromkeys(weight.module for weight in weights))
    whole = _composites(model, modules)
    if whole:
        return whole
    convolutions = [weight for weight in weights if len(weight.shape) > 2]
    layers = {weight.module: weight for weight in convolutions or weights}
    return tuple(dict.fromkeys(_end(graph, model, weight) for weight in layers.values()))


def _composites(model: nn.Module, modules: Sequence[str]) -> tuple[str, ...]:
    """Return the outermost modules with two or more weights, opening the model, containers and a lone composite."""
    opened: set[str] = {""}
    while True:
        found: dict[str, int] = {}
        for path in modules:
            block = _outermost(model, path, opened)
            found[block] = found.get(block, 0) + 1
        whole = [path for path, count in found.items() if count > 1]
        if len(whole) != 1:
            return tuple(whole)
        opened.add(whole[0])


def _outermost(model: nn.Module, path: str, opened: set[str]) -> str:
    """Return the shortest prefix of a path that is neither opened up nor a container."""
    steps = path.split(".")
    for n in range(1, len(steps)):
        prefix = ".".join(steps[:n])
        if prefix not in opened and not isinstance(model.get_submodule(prefix), CONTAINERS):
            return prefix
    return path


def _end(graph: UnitGraph, model: nn.Module, weight: Weight) -> str:
    """Return the module after which a layer's block ends."""
    parent, _, name = weight.module.rpartition(".")
    if isinstance(holder := model.get_submodule(parent), nn.Sequential):
        return _end_in_sequence(graph, model, holder, parent, name)
    norms = _norms(graph, weight)
    return norms.pop() if len(norms) == 1 else weight.module


def _end_in_sequence(graph: UnitGraph, model: nn.Module, holder: nn.Sequential, parent: str, name: str) -> str:
    """Return the last module before the next one with a weight; one that stands at several places is no end."""
    prefix = f"{parent}." if parent else ""
    busy = {weight.module for weight in graph.weights}
    registered = [id(child) for module in model.modules() for child in module._modules.values()]
    names = list(holder._modules)
    end = name
    for later in names[names.index(name) + 1 :]:
        path = prefix + later
        if any(module == path or module.startswith(f"{path}.") for module in busy):
            break
        if registered.count(id(holder._modules[later])) == 1:
            end = later
    return prefix + end


def _norms(graph: UnitGraph, weight: Weight) -> set[str]:
    """Return the normalization layers of what a layer writes, where it is the only writer and they are for it alone."""
    written = [group for group in graph.groups if any(slot.tensor == weight.tensor for slot in group.incoming)]
    alone = all(slot.module == weight.module for group in written for slot in group.incoming)
    others = {slot.module for group in graph.groups if group not in written for slot in group.norms}
    norms = {slot.module for group in written for slot in group.norms}
    return norms if alone and not norms & others else set()
