"""What of a network the per-step methods speak of: trained tensors, weights as matrices, biases and shifts."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from rekindle.graph.modules import submodule
from rekindle.graph.names import matches
from rekindle.graph.weight import Weight
from rekindle.kernels.initializers import Constant
from rekindle.methods.state import MethodContext


@dataclass(frozen=True, eq=False)
class Matrix:
    """A weight as a matrix.

    Args:
        name: The weight's name.
        read: Returns it as [out, in * kernel], or [groups, out, in * kernel] for a grouped convolution; gradients pass.
    """

    name: str
    read: Callable[[], Tensor]


def chosen(context: MethodContext, which: str, skip: Collection[str]) -> dict[str, Tensor]:
    """Return the trained parameters, all or only the stored weights (gains of weight_norm with them)."""
    weights = {name for one in context.graph.weights for name in (one.tensor, *(one.gain or ())[:1])}
    return {
        name: tensor
        for name, tensor in context.trained().items()
        if not matches(name, skip) and (which == "all" or name in weights)
    }


def matrices(context: MethodContext, skip: Collection[str]) -> tuple[list[Matrix], dict[str, str]]:
    """Return the trained weights as matrices, and the weights that are left alone with the reason."""
    embeddings = {weight.tensor for weight in context.graph.weights if weight.role == "embedding"}
    found: list[Matrix] = []
    left: dict[str, str] = {}
    for weight in context.graph.weights:
        if matches(weight.name, skip) or matches(weight.tensor, skip):
            left[weight.name] = "named in skip"
        elif weight.tensor in embeddings:
            left[weight.name] = "an embedding, whose rows are looked up and not multiplied"
        elif weight.computed:
            left[weight.name] = "the layer uses a value computed from it"
        elif weight.tensor in context.graph.adapters:
            left[weight.name] = context.graph.adapters[weight.tensor]
        elif not context.tensors[weight.tensor].requires_grad:
            left[weight.name] = "not trained"
        else:
            found.append(Matrix(weight.name, _reader(context, weight)))
    known = {name for weight in context.graph.weights for name in (weight.tensor, *(weight.gain or ())[:1])}
    unknown = [name for name, tensor in context.trained().items() if tensor.dim() > 1 and name not in known]
    return found, left | dict.fromkeys(unknown, "not known to be a weight") | dict(context.graph.not_plain)


def biases(context: MethodContext) -> dict[str, tuple[Weight, ...]]:
    """Return the trained biases (vectors only) with the weights of their layer."""
    by_tensor: dict[str, list[Weight]] = {}
    for weight in context.graph.weights:
        by_tensor.setdefault(weight.tensor, []).append(weight)
    found: dict[str, dict[str, Weight]] = {}
    odd = {**context.graph.not_plain, **context.graph.adapters}
    for bias, tensor in (*_written_together(context), *_held_together(context)):
        if bias not in odd and context.tensors[bias].dim() == 1 and context.tensors[bias].requires_grad:
            found.setdefault(bias, {}).update({weight.name: weight for weight in by_tensor.get(tensor, ())})
    return {bias: tuple(weights.values()) for bias, weights in found.items() if weights}


def shifts(context: MethodContext) -> list[str]:
    """Return the trained shifts of normalization layers."""
    if context.graph.traced:
        names = {s.tensor for group in context.graph.groups for s in group.norms if s.kind == "shift"}
    else:
        zeros = {
            name
            for name, initializer in context.graph.initializers.items()
            if isinstance(initializer, Constant) and initializer.value == 0
        }
        names = zeros - set(biases(context))
    return [name for name, tensor in context.trained().items() if name in names and tensor.dim() == 1]


def _written_together(context: MethodContext) -> list[tuple[str, str]]:
    """Return pairs of bias and weight that the same module adds into the same units; keys of attention are outgoing."""
    return [
        (bias.tensor, weight.tensor)
        for group in context.graph.groups
        for slots in (group.incoming, group.outgoing)
        for bias in slots
        for weight in slots
        if bias.kind == "bias" and weight.kind == "weight" and bias.module == weight.module
    ]


def _held_together(context: MethodContext) -> list[tuple[str, str]]:
    """Return pairs of vector and weight that one module holds, of vectors that no trace tells anything about."""
    told = {s.tensor for group in context.graph.groups for s in (*group.incoming, *group.norms, *group.outgoing)}
    pairs = []
    for weight in context.graph.weights:
        held = submodule(context.model, weight.module)._parameters
        names = {f"{weight.module}.{name}" if weight.module else name for name in held} - told
        pairs += [
            (name, weight.tensor) for name in names if name in context.tensors and context.tensors[name].dim() == 1
        ]
    return pairs


def _reader(context: MethodContext, weight: Weight) -> Callable[[], Tensor]:
    """Return a function that gives the weight as [groups?, out, in * kernel]."""
    view = weight.view
    stored = _stored(context, weight)
    groups = tuple(d for d in view.batch if d == 0)
    kernel = tuple(d for d in view.batch if d != 0)
    order = groups + view.out + view.in_ + kernel
    everything = view.rows is None and view.columns is None
    if everything and not kernel and view.view == weight.shape and order == (0, 1):
        return stored
    lead = [view.view[0]] if groups else []
    sizes = [math.prod(view.view[d] for d in dims) for dims in (view.out, view.in_, kernel)]
    rows, columns = _taker(-3, view.rows), _taker(-2, view.columns)

    def read() -> Tensor:
        whole = stored().reshape(view.view).permute(order).reshape(*lead, *sizes)
        return columns(rows(whole)).flatten(-2)

    return read


def _stored(context: MethodContext, weight: Weight) -> Callable[[], Tensor]:
    """Return a function that gives the tensor as the layer uses it: under weight_norm, gain times direction."""
    tensor = context.tensors[weight.tensor]
    if weight.gain is None:
        return lambda: tensor
    gain, dim = context.tensors[weight.gain[0]], weight.gain[1]
    return lambda: torch._weight_norm(tensor, gain, dim)


def _taker(dim: int, index: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return a function that takes some rows or columns; a range of them without a copy."""
    if index is None:
        return lambda tensor: tensor
    first, count = int(index[0]), len(index)
    if torch.equal(index.cpu(), torch.arange(first, first + count)):
        return lambda tensor: tensor.narrow(dim, first, count)
    return lambda tensor: tensor.index_select(dim, index.to(tensor.device))
