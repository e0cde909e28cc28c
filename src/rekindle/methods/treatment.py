"""A treatment: a chain of methods, each planned on what the one before leaves, carried out as a whole.

With the old values kept, an exception or an interrupt anywhere leaves model and optimizers as they were. Without them
the treatment goes on to its end once it has begun, and what interrupted it carries the record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from torch import nn

from rekindle.edits.copies import CopyLink, followers, lookalikes
from rekindle.edits.edit import Edits
from rekindle.edits.optimizer_state import OptimizerState
from rekindle.edits.record import ChangeRecord, Row
from rekindle.edits.transaction import Target, Transaction, prepare, undo
from rekindle.errors import EditError, RekindleError
from rekindle.graph import UnitGraph
from rekindle.graph.surroundings import Surroundings
from rekindle.methods.planning import Given, graph_of, plan_link, warn_of_nothing
from rekindle.observe import STALE, stale

NAMED = 30  # as many tensors are named in an error
Result = TypeVar("Result")


class Treatment:
    """Methods that are to be carried out on a model, with what was done so far."""

    def __init__(
        self,
        chain: Sequence[Any],
        model: Target,
        optimizers: Sequence[Any],
        given: Given,
        *,
        optimizer_state: OptimizerState | None = None,
        keep: bool = True,
    ) -> None:
        """Check what is said about copies; nothing is planned or written yet."""
        self._methods, self._model, self._optimizers, self._given = tuple(chain), model, tuple(optimizers), given
        self._state, self._keep = optimizer_state, keep
        self._followers = followers(given.copies, model)
        copied = [CopyLink(self._followers)] if any(not each.alike for each in self._followers) else []
        self._links = (*self._methods, *copied)
        self._graph: UnitGraph | None = given.graph
        self._around = Surroundings()
        self._done: list[Transaction] = []
        self._due: list[tuple[str, ...]] = []
        self._pointed_out: tuple[str, ...] = ()

    def carry_out(self, then: Callable[[], Any] | None = None) -> list[ChangeRecord]:
        """Carry everything out, all or nothing, and return a record for each method.

        Args:
            then: Called when everything is written; if it fails, all is taken back.
        """
        return self._carry_out(self._records, then)

    def carry_out_as_one(self) -> ChangeRecord:
        """Carry everything out, all or nothing, and return one record of the chain."""
        return self._carry_out(self._record)

    def _carry_out(self, told: Callable[[], Result], then: Callable[[], Any] | None = None) -> Result:
        """Carry everything out and return what is told of it.

        Raises:
            RekindleError: Something does not fit. Model and optimizers are as they were.
            EditError: Without the old values kept: it failed when tensors were already written; the error names them.
        """
        try:
            self._go_on()
            if then is not None:
                then()
                for transaction in self._done:
                    transaction.seal()  # what it wrote is a part of the treatment
            return told()
        except BaseException as error:
            self._around.restore()
            if self._keep:
                self.take_back()
            elif self._begun():
                self._finish(error)
            raise

    def _go_on(self) -> None:
        for number, link in enumerate(self._links):
            if number == len(self._done):
                self._done.append(self._prepared(link))
            if not self._done[number].finished:
                self._done[number].commit()
            if self._done[number].content.surgery:
                self._graph = None  # of the model as it was

    def _prepared(self, link: Any) -> Transaction:
        first = self._graph is None or not self._done
        self._graph = graph = graph_of(self._model, self._given.example, self._graph, self._methods)
        if first and isinstance(self._model, nn.Module):
            self._pointed_out = lookalikes(self._model, graph, self._optimizers, self._followers)
        content = plan_link(link, self._model, graph, self._given, self._followers)
        transaction = prepare(
            content,
            self._model,
            optimizers=self._optimizers,
            views=graph.views(),
            aliases=graph.aliases,
            optimizer_state=self._state,
            keep=self._keep,
        )
        self._due = [*self._due[: len(self._done)], self._stale(graph, transaction.rows)]
        return transaction

    def _stale(self, graph: UnitGraph, rows: Sequence[Row]) -> tuple[str, ...]:
        """Return what is due after these edits, if running statistics no longer fit.

        A scan does not know which statistics a tensor reaches. Where it would say yes, a trace decides.
        """
        edited = {row.tensor for row in rows if row.changed or row.tensor not in graph.parameters}  # fresh ones fit
        found = stale(graph, edited)
        if found and not graph.traced and self._given.graph is None and self._given.example is not None:
            with contextlib.suppress(RekindleError):  # a model that cannot be followed: nothing more is known
                found = stale(graph_of(self._model, self._given.example), edited)
        return (STALE,) if found else ()

    def _begun(self) -> bool:
        return any(transaction.begun for transaction in self._done)

    def take_back(self) -> None:
        """Take back what was done, whatever was written since."""
        for transaction in reversed(self._done):
            transaction.roll_back()

    def _finish(self, error: BaseException) -> None:
        """Go on to the end after an interruption: there are no old values to go back to."""
        try:
            self._go_on()
            error.record = self._record()  # type: ignore[attr-defined]
        except BaseException as again:
            names = list(dict.fromkeys(name for each in self._done for name in each.written))
            if not names:  # structure alone, which can always be taken back
                self.take_back()
                raise
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            failed = EditError(
                expected="a treatment with undo=False that can be finished once it has begun",
                got=f"{type(again).__name__}: {again}; written were {', '.join(names[:NAMED])}{more}",
                fix="load the model from a checkpoint, and treat it with undo=True (which costs a copy of every edited "
                "tensor) or one method after the other",
            )
            failed.written = tuple(names)  # type: ignore[attr-defined]
            raise failed from error
        if hasattr(error, "add_note"):
            error.add_note("rekindle: the treatment was finished all the same; its record is in .record of this error")

    def _records(self) -> list[ChangeRecord]:
        """Return a record for each method; what was done about copies is in the last one."""
        done = list(zip(self._done, self._due, strict=True))
        found = [  # zip stops at the last method: the link that copies is none
            ChangeRecord(
                method=method,
                rows=transaction.rows,
                skips=transaction.content.skips,
                notices=transaction.content.notices + transaction.notices + due,
                surgery=transaction.content.surgery,
                _undo=partial(_undo, [transaction]) if self._keep else _no_undo,
            )
            for method, (transaction, due) in zip(self._methods, done, strict=False)
        ]
        for transaction, due in done[len(self._methods) :]:
            last = found[-1] if found else ChangeRecord("copies", ())
            both = self._done[-2:]
            found[-1:] = [
                replace(
                    last,
                    rows=last.rows + transaction.rows,
                    notices=tuple(dict.fromkeys(last.notices + transaction.notices + due)),
                    _undo=partial(_undo, both) if self._keep else _no_undo,
                )
            ]
        if found and self._pointed_out:
            found[0] = replace(found[0], notices=found[0].notices + self._pointed_out)
        return found

    def _record(self) -> ChangeRecord:
        """Return one record of the whole chain; warn if nothing was done."""
        records = self._records()
        content = sum((each.content for each in self._done), Edits())
        warn_of_nothing(self._methods, content, [row for record in records for row in record.rows], stacklevel=5)
        if len(records) == 1:
            return records[0]
        return ChangeRecord(
            method=self._methods,
            rows=tuple(row for record in records for row in record.rows),
            skips=tuple(dict.fromkeys(skip for record in records for skip in record.skips)),
            notices=tuple(dict.fromkeys(notice for record in records for notice in record.notices)),
            surgery=tuple(operation for record in records for operation in record.surgery),
            _undo=partial(_undo, self._done) if self._keep else _no_undo,
        )


def _undo(chosen: Sequence[Transaction], force: bool) -> None:
    undo(chosen, force=force)


def _no_undo(force: bool) -> None:
    raise EditError(
        expected="a record that kept the old values",
        got="one made with undo=False",
        fix="leave undo=False out when you may want to go back; it costs a copy of every edited tensor",
    )
