"""A transaction: `prepare` computes and checks everything, `commit` writes it, `undo` goes back.

Weights, structure and optimizer state are one. With the old values kept, an exception or an interrupt at any line of
`commit` leaves all of it as it was. Without them there is no way back, so the way is forward: `commit` called again
goes on exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from rekindle.edits import operate
from rekindle.edits.compute import Change, Tensors, Views, compute
from rekindle.edits.edit import Edit, Edits
from rekindle.edits.optimizer_state import OptimizerState, decide
from rekindle.edits.record import Row
from rekindle.edits.write import Journal, overwrite
from rekindle.errors import EditError
from rekindle.graph.modules import tensors_of

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
        self._states = decide(stale, self._tensors, self._optimizers, optimizer_state)
        self._surgery = operate.prepare(content.surgery, target)
        self._journal, self._structure = (Journal() if keep else _NoWayBack()), Journal()
        # What is still to be written: changes that are computed, then sets of edits that are not.
        self._pending: tuple[list[Change], list[list[Edit]]] = (changes, []) if keep else ([], _sets(content.edits))
        self.begun = self.finished = False
        self.written: list[str] = []
        self._notices: tuple[str, ...] = ()

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

    def changed_since(self) -> tuple[int, int]:
        """Return how many tensors or parts were written or replaced since the treatment, and how many there are."""
        weights, structure = self._journal.written_since(), self._structure.written_since()
        return weights[0] + structure[0], weights[1] + structure[1]

    def touched(self) -> frozenset[int]:
        """Return the ids of tensors and of dicts that were written."""
        return self._journal.touched() | self._structure.touched()

    def seal_again(self, touched: frozenset[int]) -> None:
        """Take what a later transaction of the same treatment left on its way back for what this one left."""
        self._journal.seal_again(touched)
        self._structure.seal_again(touched)


def prepare(content: Edits, target: Target, **given: Any) -> Transaction:
    """Return a transaction, computed and checked; see `Transaction` for the arguments.

    Raises:
        RekindleError: Something does not fit; nothing was written.
    """
    return Transaction(content, target, **given)


def undo(chosen: Sequence[Transaction], every: Sequence[Transaction], *, force: bool = False) -> None:
    """Take transactions of a treatment back, last first.

    Args:
        chosen: Those to take back.
        every: All of the treatment, in order.
        force: Put the old values back whatever was written since.

    Raises:
        EditError: Something was written since (training went on, a later link) and `force` is not set; nothing is
            changed then.
    """
    found = [each.changed_since() for each in chosen]
    touched, count = sum(changed for changed, _ in found), sum(of for _, of in found)
    own = frozenset[int]().union(*(each.touched() for each in chosen))
    after = every[every.index(chosen[-1]) + 1 :]
    over = sum(bool(later.finished and later.touched() & own) for later in after)
    if (touched or over) and not force:
        later = f"; {over} later methods of the same treatment changed them too" if over else ""
        raise EditError(
            expected="weights and parts as the treatment left them",
            got=f"{touched} of {count} written or replaced since{later}",
            fix="undo later changes first and before training goes on, or pass force=True to put the old values back "
            "all the same and drop what was learned since",
        )
    for each in reversed(chosen):
        each.roll_back()
    for each in every:
        if each.finished:
            each.seal_again(own)


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
