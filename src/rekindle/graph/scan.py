"""Weights of a model by the types of its layers alone, for methods that need no roles and users without an example."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from rekindle.graph.export import aliases_of, canonical_names
from rekindle.graph.initializers import gains_of, initializers_of
from rekindle.graph.regions import MatrixView
from rekindle.graph.unit_graph import UnitGraph
from rekindle.graph.weight import Weight, WeightRole


def scan(model: nn.Module) -> UnitGraph:
    """Return a graph without unit groups: weights, initializers and ties, no roles beyond what a layer's type tells.

    Example:
        >>> [weight.name for weight in scan(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))).weights]
        ['0.weight', '2.weight']
    """
    names = canonical_names(model)
    gains = gains_of(model)
    directions = {direction: (gain, dim) for gain, (direction, dim) in gains.items()}
    parameters = {name: tuple(p.shape) for name, p in model.named_parameters()}
    weights: dict[str, Weight] = {}
    for path, module in model.named_modules():
        for attribute, view, role in _weights(module):
            tensor = next((n for n in _stored(path, attribute) if names.get(n, n) in parameters), None)
            if tensor is None:
                continue
            tensor = names.get(tensor, tensor)
            name = tensor if view.rows is None else f"{tensor}[{role}]"
            weights.setdefault(
                name, Weight(name, tensor, view, role, parameters[tensor], gain=directions.get(tensor), module=path)
            )
    return UnitGraph(
        weights=tuple(weights.values()),
        groups=(),
        uncovered={},
        not_understood=(),
        aliases=aliases_of(names),
        initializers=initializers_of(model),
        gains=gains,
        parameters=parameters,
        traced=False,
    )


def _stored(path: str, attribute: str) -> Iterator[str]:
    """Yield the names under which an attribute's tensor may be stored: itself, or behind weight_norm."""
    prefix = f"{path}." if path else ""
    yield f"{prefix}{attribute}"
    yield f"{prefix}parametrizations.{attribute}.original1"
    yield f"{prefix}{attribute}_v"


def _weights(module: nn.Module) -> Iterator[tuple[str, MatrixView, WeightRole]]:
    if isinstance(module, nn.MultiheadAttention):
        yield from _attention(module)
    elif isinstance(module, nn.modules.conv._ConvNd):
        yield "weight", _convolution(module), "hidden"
    elif isinstance(module, nn.Linear):
        attention = isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear)
        yield "weight", MatrixView(tuple(module.weight.shape), (0,), (1,)), "o" if attention else "hidden"
    elif isinstance(module, nn.Embedding):
        yield "weight", MatrixView(tuple(module.weight.shape), (1,), (0,)), "embedding"
    elif type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        yield "weight", MatrixView(tuple(module.weight.shape), (1,), (0,)), "hidden"  # type: ignore[arg-type]


def _attention(module: nn.MultiheadAttention) -> Iterator[tuple[str, MatrixView, WeightRole]]:
    roles: tuple[WeightRole, ...] = ("q", "k", "v")
    for number, role in enumerate(roles):
        if module._qkv_same_embed_dim:
            size = module.embed_dim
            rows = torch.arange(number * size, (number + 1) * size)
            yield "in_proj_weight", MatrixView((3 * size, size), (0,), (1,), rows=rows), role
        else:
            weight = getattr(module, f"{role}_proj_weight")
            yield f"{role}_proj_weight", MatrixView(tuple(weight.shape), (0,), (1,)), role


def _convolution(module: nn.modules.conv._ConvNd) -> MatrixView:
    shape, groups = tuple(module.weight.shape), module.groups
    out, in_ = (1, 0) if module.transposed else (0, 1)
    kernel = tuple(range(2, len(shape)))
    if groups == 1:
        return MatrixView(shape, (out,), (in_,), kernel)
    view = (groups, shape[0] // groups, *shape[1:])
    return MatrixView(view, (out + 1,), (in_ + 1,), (0, *(d + 1 for d in kernel)))
