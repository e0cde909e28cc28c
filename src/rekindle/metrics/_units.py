"""Sums over the elements of each unit, and factors for them, without a copy for each slot."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from rekindle.graph import UnitGraph
from rekindle.graph.groups import Group, Slot
from rekindle.graph.regions import UnitIndex


def unit_sums(where: UnitIndex, values: Tensor) -> Tensor:
    """Return for each unit the sum over its elements: `where.read(values).sum((1, 2))`, without the copy."""
    others = [dim for dim in range(len(where.view)) if dim not in where.dims]
    seen = values.reshape(where.view)
    rows = seen.sum(others) if others else seen  # the dimensions that count units, in ascending order
    order = sorted(where.dims)
    rows = rows.permute([order.index(dim) for dim in where.dims]).reshape(-1)
    return rows[where.index.to(rows.device)].sum(1)


def unit_sizes(where: UnitIndex) -> int:
    """Return the number of elements of one unit."""
    return where.index.shape[1] * prod(size for dim, size in enumerate(where.view) if dim not in where.dims)


def unit_factors(where: UnitIndex, factors: Tensor) -> Tensor:
    """Return the units' factors in a shape that multiplies the tensor seen as `where.view`; one elsewhere."""
    line = torch.ones(prod(where.view[dim] for dim in where.dims), dtype=factors.dtype, device=factors.device)
    line[where.index.reshape(-1).to(line.device)] = factors.repeat_interleave(where.index.shape[1])
    order = sorted(where.dims)
    line = line.reshape([where.view[dim] for dim in where.dims]).permute([where.dims.index(dim) for dim in order])
    return line.reshape([size if dim in where.dims else 1 for dim, size in enumerate(where.view)])


def weight_slots(graph: UnitGraph, slots: tuple[Slot, ...]) -> list[Slot]:
    """Return the slots that are weights; the gain of weight_norm goes with its direction."""
    return [slot for slot in slots if slot.kind == "weight" and slot.tensor not in graph.gains]


def scale_slots(group: Group) -> list[Slot]:
    """Return the scales of normalization layers; other factors (the slope of a PReLU) are none."""
    return [slot for slot in group.norms if slot.kind == "scale" and slot.neutral == 1.0]
