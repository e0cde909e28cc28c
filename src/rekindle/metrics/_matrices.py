"""Weights as their layers see them: matrices, with weight_norm multiplied out, one tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import torch
from torch import Tensor

from rekindle.errors import PlanError
from rekindle.graph import UnitGraph, Weight
from rekindle.graph.plain import why_not_plain
from rekindle.kernels.spectra import singular_values
from rekindle.metrics.reading import MetricInputs

COMPUTED = "its layer uses a value computed from it, which the stored tensor does not tell"
EMBEDDING = "an embedding: a table of rows, not a matrix that is multiplied"


def weights_of(graph: UnitGraph, *, embeddings: bool = False) -> list[Weight]:
    """Return the weights whose values are known from their tensors."""
    return [weight for weight in graph.weights if not weight.computed and (embeddings or weight.role != "embedding")]


def left_out(graph: UnitGraph, *, embeddings: bool = False) -> dict[str, str]:
    """Return the weights that `weights_of` leaves out, and tensors that hold no plain floats, with the reason."""
    taken = {weight.name for weight in weights_of(graph, embeddings=embeddings)}
    rest = (weight for weight in graph.weights if weight.name not in taken)
    return {weight.name: COMPUTED if weight.computed else EMBEDDING for weight in rest} | dict(graph.not_plain)


def as_float(tensor: Tensor) -> Tensor:
    """Return a detached tensor in float32, or float64 if it is."""
    tensor = tensor.detach()
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def effective(tensors: Mapping[str, Tensor], weight: Weight) -> Tensor:
    """Return a weight's whole tensor as its layer sees it: under weight_norm the direction with the gain's length."""
    stored = as_float(tensors[weight.tensor])
    if weight.gain is None:
        return stored
    name, dim = weight.gain
    norm = torch.norm_except_dim(stored, 2, dim)
    return stored * (as_float(tensors[name]).reshape(norm.shape) / torch.where(norm > 0, norm, torch.ones_like(norm)))


def matrices(tensors: Mapping[str, Tensor], weight: Weight) -> Tensor:
    """Return a weight's matrices [batch, out, in]."""
    return weight.view.read(effective(tensors, weight))


def matrix_pairs(inputs: MetricInputs, weights: list[Weight]) -> Iterator[tuple[Weight, Tensor, Tensor]]:
    """Yield each weight with its matrices now and in the reference."""
    reference = checked_reference(inputs, {weight.tensor for weight in weights})
    for weight in weights:
        yield weight, matrices(inputs.tensors, weight), matrices(reference, weight)


def checked_reference(inputs: MetricInputs, names: set[str]) -> Mapping[str, Tensor]:
    """Return the reference, if it has these tensors.

    Raises:
        PlanError: There is no reference, or it lacks tensors, or holds other than plain floats in them.
    """
    missing = sorted(names - set(inputs.reference or ()))
    if inputs.reference is None or missing:
        raise PlanError(
            expected="reference= with the initial value of every weight",
            got="no reference" if inputs.reference is None else f"a reference without {', '.join(missing[:3])}",
            fix="pass the state dict that was saved before training",
        )
    odd = {name: why for name in sorted(names) if (why := why_not_plain(inputs.reference[name]))}
    if odd:
        raise PlanError(
            expected="reference= with plain floats",
            got="; ".join(f"{name}: {why}" for name, why in list(odd.items())[:3]),
            fix="pass the state dict that was saved before it was converted",
        )
    return inputs.reference


def spectra(inputs: MetricInputs) -> Iterator[tuple[Weight, Tensor]]:
    """Yield each weight with its singular values [batch, smaller side], descending; computed once for a inputs."""
    kept: dict[str, Tensor] = inputs.memory.setdefault("singular values", {})
    for weight in weights_of(inputs.graph):
        if weight.name not in kept:
            kept[weight.name] = singular_values(matrices(inputs.tensors, weight)).cpu()
        yield weight, kept[weight.name]


def groups_of(weight: Weight) -> int:
    """Return the number of groups of a grouped convolution, which come first among its matrices; one otherwise."""
    return weight.batch // weight.kernel


def elements(weight: Weight) -> int:
    """Return the number of elements of a weight."""
    return prod(weight.sizes)
