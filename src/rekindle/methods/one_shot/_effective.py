"""What the methods on frozen weights share: which tensors they treat, and edits of a tensor as its layer sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from rekindle.edits.edit import Edit, Skip
from rekindle.edits.matrices import matrix_edits
from rekindle.graph import UnitGraph
from rekindle.graph.names import matches
from rekindle.kernels.dirac import add_dirac

NOT_TRACED = (
    "the model was not traced: a fused projection (queries, keys and values in one weight) counts as one matrix; "
    "pass example= to have its parts treated each"
)


def sorted_tensors(graph: UnitGraph, skip: tuple[str, ...]) -> tuple[list[str], list[str], tuple[Skip, ...]]:
    """Return the tensors that hold weights, the one-dimensional ones, and those to leave alone with the reason."""
    weights: list[str] = []
    vectors: list[str] = []
    skips: list[Skip] = []
    for name, shape in graph.parameters.items():
        if name in graph.gains:
            continue  # goes with its direction
        reason = "named in skip" if matches(name, skip) else _reason_to_skip(graph, name, len(shape))
        if reason:
            skips.append(Skip(name, reason))
        else:
            (vectors if len(shape) == 1 else weights).append(name)
    return weights, vectors, tuple(skips)


def _reason_to_skip(graph: UnitGraph, name: str, dimensions: int) -> str:
    if dimensions == 1:
        return ""
    held = graph.weights_of(name)
    if not held:
        return "not the weight of a layer that is known"
    if any(weight.role == "embedding" for weight in held):
        return "an embedding" + (", tied to the head" if any(weight.tied for weight in held) else "")
    if any(weight.computed for weight in held):
        return "its layer uses a value computed from it, which cannot be set"
    return ""


def edits_of(
    graph: UnitGraph, tensor: str, change: Callable[[Tensor], Tensor], key: str, touched: Tensor | None = None
) -> tuple[Edit, ...]:
    """Return the edits that replace a tensor, as its layer sees it, by `change` of it.

    Args:
        graph: Knows whether weight_norm stands between the stored tensor and the layer.
        tensor: Its name; of weight_norm the direction.
        change: Pure function on the tensor in its own shape.
        key: The method.
        touched: Mask of the elements that are changed, if not all. Under weight_norm all of them are.
    """
    held = graph.weights_of(tensor)
    if not held or held[0].gain is None:
        return (Edit(tensor, change, key, touched=None if touched is None else lambda old: touched.to(old.device)),)
    view = replace(held[0].view, rows=None, columns=None)

    def on_matrices(matrices: Tensor) -> Tensor:
        stored = view.write(matrices.new_empty(held[0].shape), matrices)
        return view.read(change(stored))

    return matrix_edits(replace(held[0], view=view), on_matrices, key)


def plus_dirac(graph: UnitGraph, tensor: str, stored: Tensor, strength: float) -> Tensor:
    """Return a stored tensor with a Dirac added to each of the weights that it holds."""
    for view in (weight.view for weight in graph.weights_of(tensor)):
        groups = view.view[0] if 0 in view.batch else 1
        kernel = tuple(view.view[d] for d in view.batch if d != 0)
        stored = view.write(stored, add_dirac(view.read(stored), strength, groups, kernel))
    return stored


def zeroed(old: Tensor, mask: Tensor) -> Tensor:
    """Return the tensor with zeros where the mask is true."""
    return torch.where(mask.to(old.device), torch.zeros_like(old), old)


def dirac_places(graph: UnitGraph, tensor: str) -> Tensor:
    """Return a mask of where a tensor's Dirac is not zero."""
    return plus_dirac(graph, tensor, torch.zeros(graph.parameters[tensor]), 1.0) != 0


def share_of_zeros(graph: UnitGraph, masks: Iterable[Tensor]) -> str:
    """Return a word about how many parameters are set to zero."""
    zeros = sum(int(mask.sum()) for mask in masks)
    every = sum(math.prod(shape) for shape in graph.parameters.values())
    return f"sets {zeros} of {every} parameters to zero: sparsity {zeros / max(every, 1):.4f}"
