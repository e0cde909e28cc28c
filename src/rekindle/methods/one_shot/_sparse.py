"""What doubly sparse and mono-sparse share: each weight set to zero with a probability, then perhaps a Dirac."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from rekindle.edits.edit import Edit, Edits
from rekindle.graph import UnitGraph
from rekindle.kernels.subsets import random_mask
from rekindle.methods.one_shot._effective import (
    NOT_TRACED,
    dirac_places,
    edits_of,
    plus_dirac,
    share_of_zeros,
    sorted_tensors,
    zeroed,
)
from rekindle.seeds import generator

# What the cards of both say alike.
COST = "One pass over the parameters; the masks take a byte an element while the plan is held."
NOT_TREATED = "Embeddings and parameters of several dimensions that are no weights are left alone."


def sparsify(
    graph: UnitGraph, probability: float, skip: tuple[str, ...], seed: int, key: str, *, dirac: float = 0.0
) -> Edits:
    """Return edits that set each element to zero with a probability, then add a Dirac to what is left.

    Args:
        graph: The model.
        probability: Of each element of weights and one-dimensional tensors, independently.
        skip: Patterns of tensor names to leave alone.
        seed: Seed of the masks.
        key: The method.
        dirac: Strength of the Dirac, which is also added to one-dimensional tensors.
    """
    if probability == 0 and dirac == 0:
        return Edits()
    weights, vectors, skips = sorted_tensors(graph, skip)

    def mask_of(name: str) -> Tensor:
        return random_mask(graph.parameters[name], probability, generator(seed, name, f"{key} mask"))

    edits: list[Edit] = []
    for name in weights:
        mask = mask_of(name)
        touched = mask | dirac_places(graph, name) if dirac else mask
        edits += edits_of(graph, name, _weight_change(graph, name, mask, dirac), key, touched)
    for name in vectors:
        mask = mask_of(name)
        edits += edits_of(graph, name, _vector_change(mask, dirac), key, None if dirac else mask)
    notices = [share_of_zeros(graph, (mask_of(name) for name in (*weights, *vectors)))]
    if dirac and not graph.traced:
        notices.append(NOT_TRACED)
    return Edits(tuple(edits), skips, tuple(notices))


def _weight_change(graph: UnitGraph, name: str, mask: Tensor, dirac: float) -> Callable[[Tensor], Tensor]:
    def change(old: Tensor) -> Tensor:
        thinned = zeroed(old, mask)
        return plus_dirac(graph, name, thinned, dirac) if dirac else thinned

    return change


def _vector_change(mask: Tensor, add: float) -> Callable[[Tensor], Tensor]:
    return lambda old: zeroed(old, mask) + add if add else zeroed(old, mask)
