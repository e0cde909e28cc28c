"""Prove a graph on the model itself.

With the outgoing slots of a group at zero nothing that its incoming slots do may be seen behind them; with them as they
are, a change must be seen. Whole groups are tried at once, so that it holds through LayerNorm as well. The model is not
written to. Each group is tried on the part of the model that it is in (`local_trial`), so that the work grows with the
size of the model; where that part cannot be run by itself, on the whole model (`whole_trial`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rekindle.errors import GraphError
from rekindle.graph.groups import Group
from rekindle.graph.modules import tensors_of
from rekindle.graph.plain import valueless, why_not_plain
from rekindle.graph.proof.local_trial import LocalTrial
from rekindle.graph.proof.refutation import MAY_STAY, OWN_PRODUCT, WITHOUT_EFFECT
from rekindle.graph.proof.tape import Unfollowable
from rekindle.graph.proof.whole_trial import WholeTrial
from rekindle.graph.surroundings import restored_on_failure
from rekindle.graph.unwrap import bare
from rekindle.graph.weight import Weight


class Provable(Protocol):
    """What of a unit graph is proved on a model."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its groups."""

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Its weights."""

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
        on_outputs_only: Names of groups that could be tried on the outputs of the whole model only, with the reason: a
            forgotten reader that writes into the same units would not be seen there.
    """

    proved: tuple[str, ...]
    not_provable: dict[str, str]
    on_outputs_only: dict[str, str] = field(default_factory=dict)


def verify(graph: Provable, model: nn.Module, example: Any, *, seed: int = 0) -> Verification:
    """Try every group of a graph on the model.

    Raises:
        GraphError: A group is wrong: its units are read by something else than its outgoing slots.
    """
    model = bare(model)
    tensors = tensors_of(model)
    if empty := valueless(tensors):
        raise GraphError(
            expected="a model with values, on which a graph can be proved",
            got=f"{empty[0]} on the meta device, which has none",
            fix="load the weights first, and verify then",
        )
    with restored_on_failure(model), torch.no_grad():
        trials = _Trials(model, example, graph)
        proved, not_provable = [], {}
        for group in graph.groups:
            closure = closure_of(graph, group)
            reason = _not_plain(tensors, closure) or unprovable(closure) or trials.judge(group, closure, seed)
            if reason is None:
                proved.append(group.name)
            else:
                not_provable[group.name] = reason
    return Verification(tuple(proved), not_provable, trials.on_outputs_only)


class _Trials:
    """Tries a group where it stands, or on the whole model."""

    def __init__(self, model: nn.Module, example: Any, graph: Provable) -> None:
        self.setting = (model, example, graph.gains)
        self.computed = {weight.tensor for weight in graph.weights if weight.computed}
        self.on_outputs_only: dict[str, str] = {}
        self.whole: WholeTrial | None = None
        self.why = ""
        try:
            self.local = LocalTrial(*self.setting)
        except Unfollowable as reason:
            self.why = str(reason)

    def judge(self, group: Group, closure: list[Group], seed: int) -> str | None:
        try:
            if self.why:
                raise Unfollowable(self.why)
            return judge(self.local, group, closure, seed)
        except Unfollowable as reason:
            self.on_outputs_only[group.name] = str(reason)
            return self._on_outputs(group, closure, seed)

    def _on_outputs(self, group: Group, closure: list[Group], seed: int) -> str | None:
        self.whole = self.whole or WholeTrial(*self.setting)
        try:
            return judge(self.whole, group, closure, seed)
        except GraphError:
            if any(slot.tensor in self.computed for g in closure for slot in g.outgoing):
                return MAY_STAY
            raise


def judge(trial: LocalTrial | WholeTrial, group: Group, closure: list[Group], seed: int) -> str | None:
    """Return why a group cannot be proved, None if it is."""
    return trial.refute(group, closure, seed) if trial.is_seen(group, seed) else WITHOUT_EFFECT


def closure_of(graph: Provable, group: Group) -> list[Group]:
    """Return the group and all groups that its units pass into without a weight."""
    found: dict[str, Group] = {}
    todo = [group.name]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = graph.group(name)
            todo += found[name].through
    return list(found.values())


def _not_plain(tensors: Mapping[str, Tensor], closure: list[Group]) -> str | None:
    """Return which slot cannot be changed for a trial, and why; None if all can."""
    slots = [slot for g in closure for slot in (*g.incoming, *g.norms, *g.outgoing)]
    found = {slot.tensor: why for slot in slots if (why := why_not_plain(tensors[slot.tensor]))}
    return next((f"{name}: {why}" for name, why in found.items()), None)


def unprovable(closure: list[Group]) -> str | None:
    """Return why a group cannot be tried at all, None if it can."""
    if any(g.leaves for g in closure):
        return "reaches the model's output without passing through a weight"
    if not any(g.outgoing for g in closure):
        score = any(g.kind == "score" for g in closure)
        return OWN_PRODUCT if score else "nothing reads it"
    return None
