"""Prove a graph on the model itself.

With the outgoing slots of a group at zero nothing that its incoming slots do may reach the output; with them as they
are, a change must be seen. Whole groups are tried at once, so that it holds through LayerNorm as well. The model is not
written to: every trial is a functional call with replaced tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rekindle.errors import GraphError
from rekindle.graph.containers import map_tensors
from rekindle.graph.export import at_rest
from rekindle.graph.groups import Group, Slot
from rekindle.graph.inputs import as_call
from rekindle.graph.model_output import beside_loss
from rekindle.graph.modules import call_with, tensors_of
from rekindle.graph.plain import valueless, why_not_plain
from rekindle.graph.unwrap import bare
from rekindle.seeds import generator, global_seed

SILENT = 1e-6  # relative change of the output that still counts as none
SEEN = 1e-12  # a forward pass that nothing reaches repeats itself bit by bit


class Provable(Protocol):
    """What of a unit graph is proved on a model."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its groups."""

    @property
    def gains(self) -> Mapping[str, tuple[str, int]]:
        """For each gain of weight_norm its direction and dimension."""

    def group(self, name: str) -> Group:
        """Return a group by its name."""


@dataclass(frozen=True)
class Verification:
    """What was proved.

    Attributes:
        proved: Names of groups for which both halves of the proof hold.
        not_provable: Names of groups for which one half cannot be tried, with the reason.
    """

    proved: tuple[str, ...]
    not_provable: dict[str, str]


def verify(graph: Provable, model: nn.Module, example: Any, *, seed: int = 0) -> Verification:
    """Try every group of a graph on the model.

    Raises:
        GraphError: A group is wrong: its units reach the output past its outgoing slots.
    """
    trial = _Trial(graph, bare(model), example)
    proved, not_provable = [], {}
    for group in graph.groups:
        closure = _closure(graph, group)
        reason = trial.not_plain(closure) or _unprovable(closure)
        if reason is None and not _is_seen(trial, group, seed):
            reason = "without effect on the output for this example: dead units, or an example that is too short"
        if reason is None:
            reason = _must_be_silent(trial, group, closure, seed)
        if reason is None:
            proved.append(group.name)
        else:
            not_provable[group.name] = reason
    return Verification(tuple(proved), not_provable)


class _Trial:
    """Runs the model with some tensors replaced."""

    def __init__(self, graph: Provable, model: nn.Module, example: Any) -> None:
        self.model, self.gains = model, graph.gains
        own = tensors_of(model)
        if empty := valueless(own):
            raise GraphError(
                expected="a model with values, on which a graph can be proved",
                got=f"{empty[0]} on the meta device, which has none",
                fix="load the weights first, and verify then",
            )
        call = tuple(as_call(model, example))
        for wide in (True, False):  # float64 shows what float32 would round away; not every model can run in it
            self.args, self.kwargs = map_tensors(partial(_cast, wide=wide), call)
            self.tensors = {name: _cast(tensor.detach(), wide) for name, tensor in own.items()}
            try:
                self.start = self.run({})
                return
            except RuntimeError:
                if not wide:
                    raise

    def not_plain(self, closure: list[Group]) -> str | None:
        """Return which slot cannot be changed for a trial, and why; None if all can."""
        slots = [slot for g in closure for slot in (*g.incoming, *g.norms, *g.outgoing)]
        found = {slot.tensor: why for slot in slots if (why := why_not_plain(self.tensors[slot.tensor]))}
        return next((f"{name}: {why}" for name, why in found.items()), None)

    def run(self, replaced: dict[str, Tensor]) -> Tensor:
        with torch.no_grad(), at_rest(self.model), global_seed(0, "forward", "verify"):
            result = call_with(self.model, self.tensors | replaced, self.args, self.kwargs)
        return torch.cat([x.double().reshape(-1) for x in beside_loss(result) if x.is_floating_point()])

    def silenced(self, slots: Iterable[Slot]) -> dict[str, Tensor]:
        replaced: dict[str, Tensor] = {}
        for slot in slots:
            old = replaced.get(slot.tensor, self.tensors[slot.tensor])
            replaced[slot.tensor] = old.masked_fill(slot.where.mask(old), 0)
        for gain, (direction, dim) in self.gains.items():
            if direction in replaced:  # a direction of length zero has no weight: silence it by its gain
                gone = torch.norm_except_dim(replaced[direction], 2, dim) == 0
                replaced[direction] = replaced[direction].masked_fill(gone, 1)
                replaced[gain] = self.tensors[gain].masked_fill(gone.reshape(self.tensors[gain].shape), 0)
        return replaced

    def disturbed(
        self, slots: Iterable[Slot], start: dict[str, Tensor], spare: Iterable[Slot], seed: int, size: float
    ) -> dict[str, Tensor]:
        replaced = dict(start)
        kept = list(spare)
        for slot in slots:
            old = replaced.get(slot.tensor, self.tensors[slot.tensor])
            where = slot.where.mask(old)
            for other in kept:
                if other.tensor == slot.tensor:  # a tied tensor is written and read: what reads stays silent
                    where = where & ~other.where.mask(old)
            noise = torch.randn(old.shape, generator=generator(seed, slot.tensor, "verify")).to(old)
            moved = old + noise * size * (float(old.float().std(correction=0)) + 0.1)
            if slot.kind == "var":
                moved = old * (1 + noise.abs())
            replaced[slot.tensor] = torch.where(where, moved, old)
        return replaced


def _cast(value: Any, wide: bool) -> Any:
    return value.double() if wide and isinstance(value, Tensor) and value.is_floating_point() else value


def _closure(graph: Provable, group: Group) -> list[Group]:
    """Return the group and all groups that its units pass into without a weight."""
    found: list[Group] = []
    todo = [group.name]
    while todo:
        name = todo.pop()
        if name not in {g.name for g in found}:
            found.append(graph.group(name))
            todo += graph.group(name).through
    return found


def _unprovable(closure: list[Group]) -> str | None:
    if any(g.leaves for g in closure):
        return "reaches the model's output without passing through a weight"
    if not any(g.outgoing for g in closure):
        score = any(g.kind == "score" for g in closure)
        return "its units are multiplied with each other" if score else "nothing reads it"
    return None


def _must_be_silent(trial: _Trial, group: Group, closure: list[Group], seed: int) -> str | None:
    outgoing = [slot for g in closure for slot in g.outgoing]
    silent = trial.silenced(outgoing)
    before = trial.run(silent)
    after = trial.run(trial.disturbed((*group.incoming, *group.norms), silent, outgoing, seed, size=1.0))
    change = _change(before, after)
    if not bool(torch.isfinite(before).all()):
        return "the model breaks when its outgoing weights are zero"
    if not change <= SILENT:
        raise GraphError(
            expected=f"no change at the output when group {group.name} changes behind silent outgoing weights",
            got=f"a relative change of {change:.3g}: something reads its units that the graph does not know",
            fix="please report this model; until then leave the group out of unit-wise methods",
        )
    return None


def _is_seen(trial: _Trial, group: Group, seed: int) -> bool:
    for size in (1.0, 10.0):
        after = trial.run(trial.disturbed(group.incoming, {}, (), seed, size))
        if not _change(trial.start, after) <= SEEN:
            return True
    return False


def _change(before: Tensor, after: Tensor) -> float:
    scale = float(before.abs().max()) + 1e-3
    return float((after - before).abs().max()) / scale
