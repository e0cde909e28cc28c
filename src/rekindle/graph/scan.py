"""Weights of a model by types and names of its layers alone, for methods that need no roles, without an example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import nn

from rekindle.graph.adapters import adapters_in
from rekindle.graph.export import aliases_of, canonical_names
from rekindle.graph.gates import recurrent_weights
from rekindle.graph.initializers import gains_of, initializers_of
from rekindle.graph.modules import modules_of, parameters_of, weight_shape
from rekindle.graph.plain import not_plain_in, shapes_of
from rekindle.graph.projections import Projection, is_attention, projection, roles_are_known, split
from rekindle.graph.regions import MatrixView
from rekindle.graph.unit_graph import UnitGraph
from rekindle.graph.unwrap import bare
from rekindle.graph.weight import Weight, WeightRole

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def scan(model: nn.Module) -> UnitGraph:
    """Return a graph without unit groups: weights, initializers and ties, no roles beyond what types and names tell.

    A fused projection of queries, keys and values is split where its name leaves no doubt, see `graph.projections`;
    else it is one weight, and listed in `unclear`. The gates of a recurrent layer are a matrix each.

    Example:
        >>> [weight.name for weight in scan(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))).weights]
        ['0.weight', '2.weight']
    """
    model = bare(model)
    names = canonical_names(model)
    gains = gains_of(model)
    parameters = shapes_of(parameters_of(model))
    modules = modules_of(model)
    weights: dict[str, Weight] = {}
    found: dict[str, Projection] = {}  # by the path of the layer
    unclear: dict[str, str] = {}
    for path, whole, roles in _stored_weights(modules, names, gains, parameters):
        told = Projection(roles) if roles else _projection(modules, path, whole)
        before = found.get(path, Projection())
        found[path] = Projection(before.roles + told.roles, before.unclear or told.unclear)
        if told.unclear:
            unclear[whole.tensor] = told.unclear
        for weight in split(whole, told.roles):
            known = weights.setdefault(weight.name, weight)
            if known.role != weight.role and "embedding" in (known.role, weight.role):
                weights[weight.name] = replace(known, role="embedding", tied=True)
    attention = [path for path, module in modules.items() if is_attention(type(module).__name__)]
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
        roles_known=roles_are_known(found, attention),
        unclear=unclear,
        adapters=adapters_in(model),
    ).leaving_out(not_plain_in(model))


def _stored_weights(
    modules: Mapping[str, nn.Module],
    names: Mapping[str, str],
    gains: Mapping[str, tuple[str, int]],
    parameters: Mapping[str, tuple[int, ...]],
) -> Iterator[tuple[str, Weight, tuple[WeightRole, ...]]]:
    """Yield for each weight the path of its layer, the whole tensor as one, and the roles that its type tells."""
    directions = {direction: (gain, dim) for gain, (direction, dim) in gains.items()}
    for path, module in modules.items():
        for attribute, view, roles in _weights(module):
            stored = next((n for n in _stored(path, attribute) if names.get(n, n) in parameters), None)
            if stored is None:
                continue
            tensor = names.get(stored, stored)
            heads = module.num_heads if isinstance(module, nn.MultiheadAttention) else None
            gain = directions.get(tensor)
            yield path, Weight(tensor, tensor, view, "hidden", parameters[tensor], heads, gain=gain, module=path), roles


def _projection(modules: Mapping[str, nn.Module], path: str, weight: Weight) -> Projection:
    """Return what a layer projects to, by its name and the class of what it stands in."""
    above, _, layer = path.rpartition(".")
    while above and isinstance(modules[above], CONTAINERS):
        above = above.rpartition(".")[0]
    owner = type(modules[above]).__name__ if path else ""
    told = projection(layer, weight.out, weight.in_, attention=is_attention(owner), owner=owner)
    single_channels = weight.out == weight.in_ == 1  # a depthwise kernel mixes nothing
    return Projection() if single_channels else told


def _stored(path: str, attribute: str) -> Iterator[str]:
    """Yield the names under which an attribute's tensor may be stored: itself, or behind weight_norm."""
    prefix = f"{path}." if path else ""
    yield f"{prefix}{attribute}"
    yield f"{prefix}parametrizations.{attribute}.original1"
    yield f"{prefix}{attribute}_v"


def _weights(module: nn.Module) -> Iterator[tuple[str, MatrixView, tuple[WeightRole, ...]]]:
    if isinstance(module, nn.MultiheadAttention):
        yield from _attention(module)
    elif isinstance(module, nn.modules.conv._ConvNd):
        yield "weight", _convolution(module), ()
    elif isinstance(module, nn.Linear):
        attention = isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear)
        yield "weight", MatrixView(weight_shape(module), (0,), (1,)), ("o",) if attention else ()
    elif isinstance(module, nn.Embedding):
        yield "weight", MatrixView(weight_shape(module), (1,), (0,)), ("embedding",)
    elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
        for name, gates in recurrent_weights(module):
            yield name, gates, ("hidden",)
    elif type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        yield "weight", MatrixView(weight_shape(module), (1,), (0,)), ()


def _attention(module: nn.MultiheadAttention) -> Iterator[tuple[str, MatrixView, tuple[WeightRole, ...]]]:
    roles: Sequence[WeightRole] = ("q", "k", "v")
    if module._qkv_same_embed_dim:
        yield "in_proj_weight", MatrixView((3 * module.embed_dim, module.embed_dim), (0,), (1,)), tuple(roles)
        return
    for role in roles:
        weight = getattr(module, f"{role}_proj_weight")
        yield f"{role}_proj_weight", MatrixView(tuple(weight.shape), (0,), (1,)), (role,)


def _convolution(module: nn.modules.conv._ConvNd) -> MatrixView:
    shape, groups = weight_shape(module), module.groups
    out, in_ = (1, 0) if module.transposed else (0, 1)
    kernel = tuple(range(2, len(shape)))
    if groups == 1:
        return MatrixView(shape, (out,), (in_,), kernel)
    view = (groups, shape[0] // groups, *shape[1:])
    return MatrixView(view, (out + 1,), (in_ + 1,), (0, *(d + 1 for d in kernel)))
