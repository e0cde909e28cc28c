"""What is done to units that a recycler has chosen; the same for all recyclers.

Incoming weights are drawn afresh by their layer's own law, normalisation becomes neutral, outgoing weights become zero,
so that the model's output does not depend on the unit any more, and the optimizer forgets both. Incoming of all groups
first, outgoing last: an element may be the one for a group and the other for the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from rekindle.core.edit import Edit, Edits
from rekindle.core.where import UnitIndex, Whole
from rekindle.graph import UnitGraph
from rekindle.graph.unit_graph import Group, Slot

KINDS = ("hidden", "gated", "stream")


def recyclable(graph: UnitGraph) -> tuple[list[Group], dict[str, str]]:
    """Return the groups whose units can be recycled, and the reasons for the others."""
    groups, left = [], {}
    for group in graph.groups:
        reason = _left_alone(graph, group)
        if reason:
            left[group.name] = reason
        else:
            groups.append(group)
    return groups, left


def _left_alone(graph: UnitGraph, group: Group) -> str:
    if group.kind not in KINDS:
        return {"output": "the model's output", "score": "queries and keys, which have no activation"}[group.kind]
    if group.leaves or not group.outgoing:
        return "it leaves the model, and cannot be silenced"
    if group.through:
        return f"it also passes into {', '.join(group.through)} without a weight, and cannot be silenced"
    both = {slot.tensor for slot in group.incoming} & {slot.tensor for slot in group.outgoing}
    if both:
        return f"{', '.join(sorted(both))} both writes and reads it"
    lawless = [slot.tensor for slot in group.incoming if not graph.has_law(slot.tensor)]
    lawless += [slot.tensor for slot in group.norms if slot.neutral is None and not graph.has_law(slot.tensor)]
    return f"it is not known how {lawless[0]} is drawn afresh" if lawless else ""


def recycle(
    graph: UnitGraph,
    chosen: Mapping[str, Tensor],
    reason: str,
    seed: int,
    model: nn.Module,
    means: Mapping[str, Tensor] | None = None,
) -> Edits:
    """Return the edits that recycle units.

    Args:
        graph: A traced graph.
        chosen: Name of the group to numbers of its units.
        reason: What is said in the record, and part of the seed: a step's number makes each draw another one.
        seed: Seed of the draws.
        model: The model, for the biases of readers.
        means: Mean activation of all units by group, if the reader's bias is to take up what a unit gave on average.

    Example:
        >>> from rekindle.graph import trace
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> graph = trace(net, torch.zeros(1, 4))
        >>> [(e.tensor, e.reason) for e in recycle(graph, {"0": torch.tensor([1])}, "redo", 0, net).edits]
        [('0.weight', 'redo: fresh'), ('0.bias', 'redo: fresh'), ('2.weight', 'redo: silent')]
    """
    groups = [(graph.group(name), units.cpu()) for name, units in chosen.items()]
    fresh = [edit for group, units in groups for edit in _incoming(graph, group, units, reason, seed)]
    taken = [
        edit
        for group, units in groups
        if means and group.name in means
        for edit in _taken_up(graph, group, units, means[group.name], reason, model)
    ]
    silent = [edit for group, units in groups for edit in _outgoing(graph, group, units, reason)]
    return Edits((*taken, *fresh, *silent))


def _incoming(graph: UnitGraph, group: Group, units: Tensor, reason: str, seed: int) -> Iterator[Edit]:
    for slot in (*group.incoming, *group.norms):
        where = slot.where.at(units)
        if slot.neutral is not None:
            yield Edit(slot.tensor, partial(_filled, value=slot.neutral), f"{reason}: neutral", where)
        else:
            draw = partial(_drawn, graph=graph, slot=slot, where=where, reason=reason, seed=seed)
            yield Edit(slot.tensor, draw, f"{reason}: fresh", where)


def _filled(part: Tensor, value: float) -> Tensor:
    return torch.full_like(part, value)


def _drawn(part: Tensor, graph: UnitGraph, slot: Slot, where: UnitIndex, reason: str, seed: int) -> Tensor:
    shape = tuple(graph.parameters.get(slot.tensor, where.view))
    fresh = graph.fresh(slot.tensor, shape, seed, reason)
    assert fresh is not None  # `recyclable` saw to it
    return where.read(fresh).to(part)


def _outgoing(graph: UnitGraph, group: Group, units: Tensor, reason: str) -> Iterator[Edit]:
    gains = {direction: (gain, dim) for gain, (direction, dim) in graph.gains.items()}
    for slot in group.outgoing:
        where = slot.where.at(units)
        yield Edit(slot.tensor, torch.zeros_like, f"{reason}: silent", where)
        if slot.tensor in gains:
            gain, dim = gains[slot.tensor]
            keep = partial(_same_size, where=where, dim=dim)
            yield Edit(gain, keep, f"{reason}: gain of what stays", Whole(), (slot.tensor,), clear_moments=False)


def _same_size(gain: Tensor, direction: Tensor, where: UnitIndex, dim: int) -> Tensor:
    """Return the gain with which the other weights keep their size when some of a direction become zero."""
    left = where.write(direction, torch.zeros_like(where.read(direction)))
    before, after = (torch.norm_except_dim(each, 2, dim).reshape(gain.shape) for each in (direction, left))
    return gain * torch.where(before > 0, after / torch.where(before > 0, before, 1), torch.ones_like(before))


def _taken_up(
    graph: UnitGraph, group: Group, units: Tensor, means: Tensor, reason: str, model: nn.Module
) -> Iterator[Edit]:
    """Yield edits of the readers' biases: b <- b + (outgoing weights) @ (mean activation), as before on average."""
    for slot in group.outgoing:
        bias = f"{slot.module}.bias" if slot.module else "bias"
        weights = graph.weights_of(slot.tensor)
        if bias not in graph.parameters or not weights or slot.tensor in {d for d, _ in graph.gains.values()}:
            continue
        out = _output_dim(weights[0].view.view, weights[0].view.out, graph.parameters[slot.tensor])
        if graph.parameters[bias] != (graph.parameters[slot.tensor][out],):
            continue
        add = partial(_with_contribution, where=slot.where.at(units), means=means[units.to(means.device)], out=out)
        yield Edit(bias, add, f"{reason}: mean taken up", Whole(), (slot.tensor,), clear_moments=False)


def _output_dim(view: Sequence[int], out: Sequence[int], shape: Sequence[int]) -> int:
    """Return which dimension of a weight counts outputs: the first, but for transposed ones as GPT-2's Conv1D."""
    return 1 if tuple(view) == tuple(shape) and tuple(out) == (1,) else 0


def _with_contribution(bias: Tensor, weight: Tensor, where: UnitIndex, means: Tensor, out: int) -> Tensor:
    part = where.read(weight) * means.to(weight)[:, None, None]
    alone = where.write(torch.zeros_like(weight), part)
    return bias + alone.sum(dim=[d for d in range(weight.dim()) if d != out])
