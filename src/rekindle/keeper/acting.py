"""What a Keeper writes between two steps of training, each time all or nothing."""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from rekindle.edits import write
from rekindle.edits.edit import Edits
from rekindle.edits.optimizer_state import OptimizerState, averaged_weights, begin_again
from rekindle.edits.transaction import prepare
from rekindle.edits.update import Replace, Update
from rekindle.graph import UnitGraph
from rekindle.graph.modules import tensors_of
from rekindle.keeper.events import RecyclingRecord
from rekindle.methods.recycling import Means, held_back, not_cut_off, recycle
from rekindle.methods.state import MethodState


@dataclass(eq=False)
class Actor:
    """Writes what methods want after a step."""

    model: nn.Module
    graph: UnitGraph
    optimizers: Sequence[Any]
    optimizer_state: OptimizerState | None
    seed: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    def update(self, update: Update) -> None:
        """Write a fused update; one that replaces whole tensors goes on to its end also when it is interrupted."""
        if not isinstance(update, Replace):
            write.carry_out(update, averaged_weights(update.tensors, self.optimizers))
            return
        try:
            self._replace(update)
        except BaseException:
            self._replace(update)
            raise

    def _replace(self, update: Replace) -> None:
        write.carry_out(update, averaged_weights(update.tensors, self.optimizers))
        if update.clear_moments:
            begin_again(update.tensors, tensors_of(self.model), self.optimizers, self.optimizer_state)

    def act(
        self, method: Any, one: MethodState, step: int, records: MutableSequence[RecyclingRecord]
    ) -> list[RecyclingRecord]:
        """Carry out what a method wants edited or recycled after a step; whatever is done is in `records`."""
        told = []
        edits = one.edits(step)
        if edits is not None and edits.edits:
            told.append(self._edit(method, one, step, edits, {}, {}, records))
        chosen = {name: units for name, units in one.choose(step).items() if len(units)}
        kept = not_cut_off(self.graph, chosen) if chosen else {}
        if kept:
            means: Means = getattr(one, "means", dict)()
            recycling = recycle(self.graph, kept, f"{method.key} at step {step}", self.seed, self.model, means)
            told.append(self._edit(method, one, step, recycling, kept, held_back(chosen, kept), records))
        return told

    def _edit(
        self,
        method: Any,
        one: MethodState,
        step: int,
        edits: Edits,
        units: Mapping[str, Tensor],
        held: Mapping[str, tuple[int, ...]],
        records: MutableSequence[RecyclingRecord],
    ) -> RecyclingRecord:
        transaction = prepare(
            edits,
            self.model,
            optimizers=self.optimizers,
            aliases=self.graph.aliases,
            optimizer_state=self.optimizer_state,
            measured=False,
        )
        record = RecyclingRecord(
            step=step,
            method=str(method),
            units={name: tuple(numbers.tolist()) for name, numbers in units.items()},
            held_back=held,
            tensors=tuple(dict.fromkeys(edit.tensor for edit in edits.edits)),
            notices=transaction.notices,
            skipped=self.skipped,
        )
        try:
            transaction.commit()
            one.recycled(units)
            records.append(record)
            self.skipped = {}  # told once
            return record
        except BaseException:
            transaction.roll_back()
            if record in records:
                records.remove(record)
            raise
