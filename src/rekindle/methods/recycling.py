"""What is done to units that a recycler has chosen; the same for all recyclers.

Incoming weights are drawn afresh by their layer's own initializer, normalization becomes neutral, outgoing weights
become zero, so that nothing reads the unit any more, and the optimizer forgets both. Incoming of all groups first,
outgoing last: an element may be the one for a group and the other for the next.

The model's output then does not depend on the unit, with one exception: a normalization over units (LayerNorm,
GroupNorm, RMSNorm) still counts the fresh unit in its mean and variance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from rekindle.edits.edit import Edit, Edits
from rekindle.graph import UnitGraph
from rekindle.graph.groups import Group, Slot
from rekindle.graph.modules import parameters_of
from rekindle.graph.regions import UnitIndex, Whole
from rekindle.graph.weight import Weight

KINDS = ("hidden", "gated", "stream")

Means = Mapping[str, Mapping[str, Tensor]]
"""By group and outgoing tensor the mean of what that tensor reads of each unit: [units, repeat]."""


def recyclable(graph: UnitGraph, frozen: Collection[str] = ()) -> tuple[list[Group], dict[str, str]]:
    """Return the groups whose units can be recycled, and the reasons for the others.

    Args:
        graph: A traced graph.
        frozen: Parameters that stay; groups with one of them are left alone.
    """
    groups, left = [], {}
    for group in graph.groups:
        reason = _reason_to_skip(graph, group, frozen)
        if reason:
            left[group.name] = reason
        else:
            groups.append(group)
    return groups, left


def _reason_to_skip(graph: UnitGraph, group: Group, frozen: Collection[str]) -> str:
    if group.kind not in KINDS:
        return {"output": "the model's output", "score": "queries and keys, which have no activation"}[group.kind]
    if group.leaves or not group.outgoing:
        return "it leaves the model, and cannot be silenced"
    odd = [s.tensor for s in (*group.incoming, *group.norms, *group.outgoing) if s.tensor in graph.not_plain]
    if odd:
        return f"{odd[0]}: {graph.not_plain[odd[0]]}"
    halves = [s.tensor for s in (*group.incoming, *group.norms, *group.outgoing) if s.tensor in graph.adapters]
    if halves:
        return f"{halves[0]}: {graph.adapters[halves[0]]}"
    if group.through:
        return f"it also passes into {', '.join(group.through)} without a weight, and cannot be silenced"
    both = sorted({a.tensor for a in group.incoming for b in group.outgoing if _same_elements(graph, a, b)})
    if both:
        return f"{', '.join(both)} both writes and reads it"
    computed = [s.tensor for s in group.outgoing if any(weight.computed for weight in graph.weights_of(s.tensor))]
    if computed:
        return f"{computed[0]} reads it after a computation, and zeros there need not silence it"
    unknown = [slot.tensor for slot in group.incoming if not graph.has_initializer(slot.tensor)]
    unknown += [slot.tensor for slot in group.norms if slot.neutral is None and not graph.has_initializer(slot.tensor)]
    if unknown:
        return f"it is not known how {unknown[0]} is drawn afresh"
    still = [s.tensor for s in (*group.incoming, *group.norms, *group.outgoing) if s.tensor in frozen]
    return f"{still[0]} is frozen" if still else ""


def _same_elements(graph: UnitGraph, incoming: Slot, outgoing: Slot) -> bool:
    """Tell whether what writes a unit also reads it (tied weights); a square layer's rows and columns only cross."""
    if incoming.tensor != outgoing.tensor:
        return False
    nothing = torch.empty(graph.parameters[incoming.tensor])
    first = torch.tensor([0])
    writes, reads = (slot.where.at(first).mask(nothing) for slot in (incoming, outgoing))
    return not bool((writes & ~reads).any())


def not_cut_off(graph: UnitGraph, chosen: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the chosen units without those that would be left with no incoming weight at all.

    A unit that reads nothing but units recycled at the same time (the two halves of a depthwise separable convolution,
    a layer above one that is recycled as a whole) would have only silent weights before it and after it, and never
    learn again. It waits for another time.
    """
    silent: dict[str, Tensor] = {}
    left = {name: units.cpu() for name, units in chosen.items()}
    for group in (group for group in graph.groups if group.name in left):  # in order of execution
        cut = _cut_off(graph, group, left[group.name], silent)
        left[group.name] = left[group.name][~cut]
        for slot in group.outgoing:
            mask = slot.where.at(left[group.name]).mask(torch.empty(graph.parameters[slot.tensor]))
            silent[slot.tensor] = silent[slot.tensor] | mask if slot.tensor in silent else mask
    return {name: units for name, units in left.items() if len(units)}


def held_back(chosen: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the chosen units that are not among those kept.

    Example:
        >>> held_back({"fc": torch.tensor([1, 2])}, {"fc": torch.tensor([2])})
        {'fc': (1,)}
    """
    found = {
        name: set(units.tolist()) - set(kept[name].tolist() if name in kept else ()) for name, units in chosen.items()
    }
    return {name: tuple(sorted(units)) for name, units in found.items() if units}


def _cut_off(graph: UnitGraph, group: Group, units: Tensor, silent: Mapping[str, Tensor]) -> Tensor:
    """Return which of the units have only silent incoming weights."""
    cut = torch.ones(len(units), dtype=torch.bool)
    for slot in group.incoming:
        if slot.kind != "weight" or slot.tensor in graph.gains:
            continue
        if slot.tensor not in silent:
            return torch.zeros_like(cut)
        cut &= slot.where.at(units).read(silent[slot.tensor]).flatten(1).all(1)
    return cut


def recycle(
    graph: UnitGraph,
    chosen: Mapping[str, Tensor],
    reason: str,
    seed: int,
    model: nn.Module,
    means: Means | None = None,
) -> Edits:
    """Return the edits that recycle units.

    Args:
        graph: A traced graph.
        chosen: Name of the group to numbers of its units.
        reason: What is said in the record, and part of the seed: a step's number makes each draw another one.
        seed: Seed of the draws.
        model: The model, for the readers' biases.
        means: What the readers saw on average, if their biases are to take it up.

    Example:
        >>> from rekindle.graph import trace
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> graph = trace(net, torch.zeros(1, 4))
        >>> [(e.tensor, e.reason) for e in recycle(graph, {"0": torch.tensor([1])}, "redo", 0, net).edits]
        [('0.weight', 'redo: fresh'), ('0.bias', 'redo: fresh'), ('2.weight', 'redo: silent')]
    """
    groups = [(graph.group(name), units.cpu()) for name, units in chosen.items()]
    taken = [
        edit
        for group, units in groups
        for edit in _taken_up(graph, group, units, (means or {}).get(group.name, {}), reason, model)
    ]
    fresh = [edit for group, units in groups for edit in _incoming(graph, group, units, reason, seed)]
    return Edits((*taken, *fresh, *_outgoing(graph, groups, fresh, reason)))


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


def _outgoing(
    graph: UnitGraph, groups: Sequence[tuple[Group, Tensor]], fresh: Sequence[Edit], reason: str
) -> Iterator[Edit]:
    directions = {direction: (gain, dim) for gain, (direction, dim) in graph.gains.items()}
    normed: dict[str, list[UnitIndex]] = {}
    for group, units in groups:
        for slot in group.outgoing:
            where = slot.where.at(units)
            if slot.tensor in directions:
                normed.setdefault(slot.tensor, []).append(where)
            else:
                yield Edit(slot.tensor, torch.zeros_like, f"{reason}: silent", where)
    for direction, silent in normed.items():
        before = [edit for edit in fresh if edit.tensor == direction]
        yield from _silent_direction(direction, *directions[direction], silent, before, reason)


def _silent_direction(
    direction: str, gain: str, dim: int, silent: Sequence[UnitIndex], before: Sequence[Edit], reason: str
) -> Iterator[Edit]:
    """Yield edits of a reader under weight_norm: zeros in the direction, and the gain with which the rest stays.

    A row that would be zero as a whole has no direction: it keeps its values and its gain becomes zero.
    """

    def zeroed(values: Tensor) -> Tensor:
        for where in silent:
            values = where.write(values, torch.zeros_like(where.read(values)))
        return values

    def sizes(values: Tensor) -> Tensor:
        return torch.norm_except_dim(values, 2, dim)

    def new_direction(values: Tensor) -> Tensor:
        new = zeroed(values)
        return torch.where(sizes(new) > 0, new, values)

    def touched(values: Tensor) -> Tensor:
        mask = torch.stack([where.mask(values) for where in silent]).any(0)
        return mask & (sizes(zeroed(values)) > 0)

    def new_gain(old: Tensor, values: Tensor) -> Tensor:
        for edit in before:  # incoming weights of other units in the same tensor, which come first
            values = edit.where.write(values, edit.op(edit.where.read(values)))
        was, now = (sizes(each).reshape(old.shape) for each in (values, zeroed(values)))
        return old * torch.where(was > 0, now / torch.where(was > 0, was, 1), torch.ones_like(was))

    yield Edit(direction, new_direction, f"{reason}: silent", Whole(), touched=touched)
    yield Edit(gain, new_gain, f"{reason}: gain of what stays", Whole(), (direction,), clear_moments=False)


def _taken_up(
    graph: UnitGraph, group: Group, units: Tensor, means: Mapping[str, Tensor], reason: str, model: nn.Module
) -> Iterator[Edit]:
    """Yield edits of the readers' biases: b <- b + (outgoing weights) @ (mean activation), as before on average."""
    gains = {direction: (gain, dim) for gain, (direction, dim) in graph.gains.items()}
    trained = {name for name, p in parameters_of(model).items() if p.requires_grad and name not in graph.not_plain}
    for slot in group.outgoing:
        bias = bias_of(slot.tensor)
        if slot.tensor not in means or bias not in trained:
            continue
        seen = means[slot.tensor][units.to(means[slot.tensor].device)]
        gain, dim = gains.get(slot.tensor, (None, 0))
        add = partial(
            _with_contribution,
            weights=graph.weights_of(slot.tensor),
            where=slot.where.at(units),
            means=seen / _overlap(model, slot.module),
            dim=dim,
        )
        reads = (slot.tensor,) if gain is None else (slot.tensor, gain)
        yield Edit(bias, add, f"{reason}: mean taken up", Whole(), reads, clear_moments=False)


def bias_of(weight: str) -> str:
    """Return the name that the bias beside a weight has.

    Example:
        >>> bias_of("fc.weight"), bias_of("fc.parametrizations.weight.original1"), bias_of("mha.in_proj_weight")
        ('fc.bias', 'fc.bias', 'mha.in_proj_bias')
    """
    weight = weight.replace("parametrizations.weight.original1", "weight")
    owner, dot, leaf = weight.removesuffix("_v").rpartition(".")
    return f"{owner}{dot}{leaf.removesuffix('weight')}bias"


def _overlap(model: nn.Module, path: str) -> float:
    """Return how many outputs of a transposed convolution share one kernel: each has but a part of the positions."""
    module = model.get_submodule(path)
    return float(math.prod(module.stride)) if isinstance(module, _ConvTransposeNd) else 1.0


def _with_contribution(
    bias: Tensor,
    stored: Tensor,
    gain: Tensor | None = None,
    *,
    weights: Sequence[Weight],
    where: UnitIndex,
    means: Tensor,
    dim: int,
) -> Tensor:
    effective = stored if gain is None else torch._weight_norm(stored, gain, dim)
    part = where.read(effective) * means.to(effective)[:, :, None]  # [units, repeat, outputs and kernel]
    alone = where.write(torch.zeros_like(effective), part)
    new = bias.clone()
    for weight in weights:
        batch, out, _ = weight.sizes
        added = weight.view.read(alone).sum(2).reshape(-1, weight.kernel, out).sum(1).reshape(-1)  # [groups * out]
        rows = torch.arange(len(added)) if weight.view.rows is None else weight.view.rows
        new[rows.to(bias.device)] += added.to(bias)
    return new
