"""A model's tensors with some slots silent, disturbed or exchanged: what a group is tried with. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rekindle.graph.groups import Slot
from rekindle.seeds import generator

Tensors = Mapping[str, Tensor]


def silenced(tensors: Tensors, slots: Iterable[Slot], gains: Mapping[str, tuple[str, int]]) -> dict[str, Tensor]:
    """Return the tensors that change when slots are set to zero.

    Args:
        tensors: The model's tensors by name.
        slots: What is set to zero.
        gains: For each gain of weight_norm its direction and dimension.
    """
    replaced: dict[str, Tensor] = {}
    for slot in slots:
        old = replaced.get(slot.tensor, tensors[slot.tensor])
        replaced[slot.tensor] = old.masked_fill(slot.where.mask(old), 0)
    for gain, (direction, dim) in gains.items():
        if direction in replaced:  # a direction of length zero has no weight: silence it by its gain
            gone = torch.norm_except_dim(replaced[direction], 2, dim) == 0
            replaced[direction] = replaced[direction].masked_fill(gone, 1)
            replaced[gain] = tensors[gain].masked_fill(gone.reshape(tensors[gain].shape), 0)
    return replaced


def disturbed(
    tensors: Tensors, slots: Iterable[Slot], start: Tensors, spare: Sequence[Slot], seed: int, size: float = 1.0
) -> dict[str, Tensor]:
    """Return the replaced tensors, with noise on slots.

    Args:
        tensors: The model's tensors by name.
        slots: What is disturbed.
        start: Tensors that are replaced already.
        spare: What stays as it is: of a tensor that is written and read, the part that reads stays silent.
        seed: Of the noise, with the tensor's name.
        size: How strong the noise is, in units of what the tensor varies by.
    """
    replaced = dict(start)
    for slot in slots:
        old = replaced.get(slot.tensor, tensors[slot.tensor])
        noise = torch.randn(old.shape, generator=generator(seed, slot.tensor, "verify")).to(old)
        moved = old + noise * size * (float(old.float().std(correction=0)) + 0.1)
        if slot.kind == "var":
            moved = old * (1 + noise.abs())
        replaced[slot.tensor] = torch.where(_where(slot, old, spare), moved, old)
    return replaced


def exchanged(
    tensors: Tensors, slots: Iterable[Slot], start: Tensors, spare: Sequence[Slot], order: Tensor
) -> dict[str, Tensor]:
    """Return the replaced tensors, with the units of slots in another order."""
    replaced = dict(start)
    done: set[tuple[object, ...]] = set()
    for slot in slots:
        region = (slot.tensor, slot.where.view, slot.where.dims, slot.where.index.numpy().tobytes())
        if region not in done:
            old = replaced.get(slot.tensor, tensors[slot.tensor])
            new = slot.where.write(old, slot.where.read(old)[order])
            replaced[slot.tensor] = torch.where(_where(slot, old, spare), new, old)
        done.add(region)
    return replaced


def of_units(slots: Iterable[Slot], units: Tensor) -> list[Slot]:
    """Return the slots for some of the units only."""
    return [replace(slot, where=slot.where.at(units)) for slot in slots]


def _where(slot: Slot, old: Tensor, spare: Sequence[Slot]) -> Tensor:
    where = slot.where.mask(old)
    for other in spare:
        if other.tensor == slot.tensor:
            where = where & ~other.where.mask(old)
    return where
