"""A transaction: `prepare` computes and checks everything, `commit` writes it, `undo` goes back.

Weights, structure and optimizer state are one. With the old values kept, an exception or an interrupt at any line of
`commit` leaves all of it as it was. Without them there is no way back, so the way is forward: `commit` called again
goes on exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.edits import operate
from rekindle.edits.compute import Change, Tensors, Views, compute
from rekindle.edits.edit import Edit, Edits
from rekindle.edits.optimizer_state import OptimizerState, decide, inner
from rekindle.edits.overlap import overlapping
from rekindle.edits.record import Row
from rekindle.edits.write import Journal, Left, count_changed, overwrite
from rekindle.errors import EditError
from rekindle.graph.modules import tensors_of
from rekindle.text import counted

Target = nn.Module | Mapping[str, Tensor]


class _NoWayBack(Journal):
    """A journal for writes that are not taken back."""

    def put(self, target: Tensor, new: Tensor) -> None:
        """Write, and keep nothing."""
        overwrite(target, new)

    def note(self, back: Any) -> None:
        """Keep nothing."""


class Transaction:
    """One link of a treatment, computed and checked, to be written as a whole.

    Attributes:
        content: What was planned.
        finished: Whether everything is written.
        written: Names of the tensors that were written so far.
    """

    def __init__(
        self,
        content: Edits,
        target: Target,
        *,
        optimizers: Sequence[Any] = (),
        views: Views | None = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
        optimizer_state: OptimizerState | None = None,
        keep: bool = True,
        measured: bool = True,
    ) -> None:
        """Compute and check; nothing is written. Made by `prepare`."""
        self.content, self._target = content, target
        self._tensors: Tensors = tensors_of(target) if isinstance(target, nn.Module) else target
        self._aliases, self._optimizers, self._keep = aliases or {}, tuple(optimizers), keep
        computed = compute(content.edits, self._tensors, views=views, measured=measured)
        changes: list[Change] = []
        rows: list[Row] = []
        stale: dict[str, bool] = {}
        for change in computed:
            rows += change.rows
            if change.stale is not None:
                stale[change.tensor] = bool(change.stale.all())
            if keep:
                changes.append(change)
        self._rows: tuple[Row, ...] = tuple(rows)
        self._refuse_shared(content)
        self._states = decide(stale, self._tensors, self._optimizers, optimizer_state)
        self._held = [(each, each.state) for each in map(inner, self._optimizers) if hasattr(each, "state")]
        self._surgery = operate.prepare(content.surgery, target)
        self._journal, self._structure = (Journal() if keep else _NoWayBack()), Journal()
        # What is still to be written: changes that are computed, then sets of edits that are not.
        self._pending: tuple[list[Change], list[list[Edit]]] = (changes, []) if keep else ([], _sets(content.edits))
        self.begun = self.finished = False
        self.written: list[str] = []
        self._notices: tuple[str, ...] = ()

    def _refuse_shared(self, content: Edits) -> None:
        """Refuse tensors that share memory, or are said to be one and are not: what is written to one is in another.

        Raises:
            EditError: An edited tensor overlaps another, or has an alias with other values.
        """
        edited = dict.fromkeys(edit.tensor for edit in content.edits)
        for name in edited:
            for other in self._aliases.get(name, ()):
                if other in self._tensors and not torch.equal(self._tensors[other], self._tensors[name]):
                    raise EditError(
                        expected=f"{other} with the values of {name}, to which the graph says that it is tied",
                        got="other values",
                        fix="trace the model as it is now, and pass that graph; nothing was changed",
                    )
        for name, other in overlapping(self._tensors, self._aliases):
            if name in edited or other in edited:
                raise EditError(
                    expected="tensors with memory of their own, or one tensor under several names",
                    got=f"{name} and {other}, which share memory and are two tensors",
                    fix="tie weights by using one nn.Parameter in both places; nothing was changed",
                )

    @property
    def rows(self) -> tuple[Row, ...]:
        """The edits in numbers."""
        return self._rows

    @property
    def notices(self) -> tuple[str, ...]:
        """What happened to optimizer state and structure."""
        return self._states.notices + self._notices

    def commit(self) -> None:
        """Write everything. If it fails, all is as it was; without the old values, call it again to go on."""
        try:
            self._go_on()
        except BaseException:
            if self._keep:
                self.roll_back()
            raise

    def _go_on(self) -> None:
        ready, later = self._pending
        while ready or later:
            if not ready:
                self._pending = (list(compute(later[0], self._tensors, measured=False)), later[1:])
                ready, later = self._pending
            self.begun = True
            for group in self._states.groups:  # first: counters that begin again leave nothing to correct
                group.begin_group(self._journal)
            for change in ready:
                self._write(change)
            self._pending = ([], later)
            ready = []
        self.begun = True
        self._structure.roll_back()  # of a structure half put in: it is begun again
        self._notices = tuple(operate.carry_out(self._surgery, self._target, self._optimizers, self._structure))
        self.seal()
        self.finished = True

    def _write(self, change: Change) -> None:
        target = self._tensors[change.tensor]
        self.written.append(change.tensor)
        self._journal.put(target, change.new)
        for other in self._aliases.get(change.tensor, ()):
            if other in self._tensors and self._tensors[other].data_ptr() != target.data_ptr():
                self._journal.put(self._tensors[other], change.new)
        if change.stale is not None:
            for state in self._states.of.get(change.tensor, ()):
                state.carry_out(self._journal, change.new, change.stale)

    def seal(self) -> None:
        """Take what the tensors are like now for what the treatment left."""
        self._journal.seal()
        self._structure.seal()

    def roll_back(self) -> None:
        """Take structure, weights and optimizer state back, whatever happened since."""
        self._structure.roll_back()
        self._journal.roll_back()
        self.finished = self.begun = False

    def left(self) -> Left:
        """Return what the transaction left, to be compared with what is there now."""
        return {**self._journal.left(), **self._structure.left()}

    def replaced(self) -> list[str]:
        """Return tensors that were written and are no longer in the model, and optimizers with another state."""
        now = tensors_of(self._target) if isinstance(self._target, nn.Module) else self._target
        there = set(map(id, now.values())) if isinstance(self._target, nn.Module) else set()
        gone = [name for name in dict.fromkeys(self.written) if not self._is_there(name, now, there)]
        other = [type(each).__name__ for each, state in self._held if each.state is not state]
        return gone + [f"the state of {name}" for name in other]

    def _is_there(self, name: str, now: Tensors, there: set[int]) -> bool:
        """Tell whether a tensor is still in use; a change of structure may have given it another name."""
        tensor = self._tensors[name]
        return id(tensor) in there or (name in now and now[name] is tensor)


def prepare(content: Edits, target: Target, **given: Any) -> Transaction:
    """Return a transaction, computed and checked; see `Transaction` for the arguments.

    Raises:
        RekindleError: Something does not fit; nothing was written.
    """
    return Transaction(content, target, **given)


def undo(chosen: Sequence[Transaction], *, force: bool = False) -> None:
    """Take transactions back, last first.

    Raises:
        EditError: Something was written since (training went on, a later treatment) and `force` is not set; or objects
            were replaced, so that there is nothing to put the old values into. Nothing is changed then.
    """
    gone = [name for each in chosen for name in each.replaced()]
    if gone:
        raise EditError(
            expected="the tensors and the optimizer state that were treated",
            got=f"others in their places: {counted(gone)}",
            fix="undo before you load with assign=True, load an optimizer's state, or replace modules; now load a "
            "checkpoint from before the treatment",
        )
    left: dict[Any, tuple[Any, Any]] = {}
    for each in chosen:  # a later one of these has the last word about what both wrote
        left |= each.left()
    touched = count_changed(left)
    if touched and not force:
        raise EditError(
            expected="weights and parts as the treatment left them",
            got=f"{touched} of {len(left)} written or replaced since",
            fix="undo later changes first and before training goes on, or pass force=True to put the old values back "
            "all the same and drop what was learned since",
        )
    for each in reversed(chosen):
        each.roll_back()


def _sets(edits: Sequence[Edit]) -> list[list[Edit]]:
    """Split edits into those of tensors that read each other, which are computed before any is written, and the rest.

    The rest never needs more than one tensor at once.
    """
    together = {name for edit in edits if edit.reads for name in (edit.tensor, *edit.reads)}
    sets: dict[str, list[Edit]] = {}
    for edit in edits:
        sets.setdefault("" if edit.tensor in together else edit.tensor, []).append(edit)
    linked = sets.pop("", None)
    return [linked, *sets.values()] if linked else list(sets.values())
