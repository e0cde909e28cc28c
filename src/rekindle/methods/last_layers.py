"""Which layers come last: the heads, and the fully connected layers before them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from rekindle.edits.edit import Skip
from rekindle.graph.groups import Group, Slot
from rekindle.graph.unit_graph import UnitGraph
from rekindle.graph.weight import Weight


def last_layers(graph: UnitGraph, layers: int | str) -> tuple[list[Slot], list[Skip], int]:
    """Return what belongs to the last layers, the heads that are left alone, and how many layers there are."""
    level, slots, skips = [], [], []
    for group in graph.groups:
        heads = [weight for weight in _writers(graph, group) if group.kind == "output"]
        tied = [weight for weight in heads if weight.tied or weight.role == "embedding"]
        skips += [Skip(weight.name, f"a head that is tied to another layer ({weight.role})") for weight in tied]
        level += [(group, weight) for weight in heads if weight not in tied]
    skips += [Skip(name, f"perhaps a last layer: {why}") for name, why in graph.maybe_last.items()]
    seen = {group.name for group, _ in level}
    depth = 0
    while level and depth != layers:
        slots += list(_slots_of(graph, level))
        groups = [group for group in _read_by(graph, level) if group.name not in seen and _connected(graph, group)]
        seen |= {group.name for group in groups}
        level = [(group, weight) for group in groups for weight in _writers(graph, group)]
        depth += 1
    return slots, skips, depth


def _slots_of(graph: UnitGraph, level: list[tuple[Group, Weight]]) -> Iterator[Slot]:
    """Yield the rows of these weights in their groups, the biases, and the norms of groups that are drawn whole."""
    for group in dict.fromkeys(group for group, _ in level):
        drawn = {weight.tensor for owner, weight in level if owner is group}
        whole = drawn == {weight.tensor for weight in _writers(graph, group)}
        modules = {slot.module for slot in group.incoming if slot.tensor in drawn}
        gains = {gain for gain, (direction, _) in graph.gains.items() if direction in drawn}
        for slot in group.incoming:
            if slot.tensor in drawn | gains or slot.kind == "bias" and (whole or slot.module in modules):
                yield slot
        yield from group.norms if whole else ()


def _writers(graph: UnitGraph, group: Group) -> list[Weight]:
    """Return the weights that write a group."""
    rows = {slot.tensor: slot for slot in group.incoming if slot.kind == "weight"}
    found = [weight for weight in graph.weights if weight.tensor in rows]
    return [weight for weight in found if len(graph.weights_of(weight.tensor)) == 1 or _meets(weight, rows)]


def _meets(weight: Weight, rows: dict[str, Slot]) -> bool:
    """Tell whether one of several weights in a tensor is the one that writes these rows."""
    nothing = torch.zeros(weight.shape, dtype=torch.bool)
    return bool((weight.view.mask(nothing) & rows[weight.tensor].where.mask(nothing)).any())


def _read_by(graph: UnitGraph, level: list[tuple[Group, Weight]]) -> list[Group]:
    """Return the groups that these weights read, if they are fully connected."""
    tensors = {weight.tensor for _, weight in level if not weight.view.batch}
    return [
        group
        for group in graph.groups
        if group.kind != "score" and any(slot.tensor in tensors for slot in group.outgoing)
    ]


def _connected(graph: UnitGraph, group: Group) -> bool:
    """Tell whether a group is written by plain fully connected layers alone."""
    return all(
        weight.role in ("input", "hidden") and not weight.tied and not weight.view.batch
        for weight in _writers(graph, group)
    )
