"""What every engine does with one run: claim it, train it, write what came out. And how it tells of it."""

from __future__ import annotations

import importlib
import inspect
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from rekindle.errors import RekindleError
from rekindle.lab.runs import shared_prefix
from rekindle.lab.runs.claim import Claim, beating
from rekindle.lab.runs.rows import Row
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store

# module:function, so that workers, on other machines too, find it by name
TRAIN_RUN = "rekindle.lab.runs.training_run:train_run"
Kind = Literal["started", "row", "finished", "failed", "elsewhere", "retried", "short_of_memory"]


class EngineError(RekindleError):
    """An engine cannot run what it was given."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a run.

    Args:
        kind: What happened; "elsewhere" is a run that another process works on.
        key: The run.
        row: Its newest row, or nothing.
        text: What a person should know: the last line of a traceback, or why a run is tried again.
    """

    kind: Kind
    key: str
    row: Row = field(default_factory=dict)
    text: str = ""


Listen = Callable[[Event], None]


@dataclass
class Summary:
    """What came of a sweep: the keys of its runs by what happened to them."""

    finished: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    finished_before: list[str] = field(default_factory=list)
    failed_before: list[str] = field(default_factory=list)
    retried: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every run is finished."""
        return not (self.interrupted or self.failed or self.failed_before or self.elsewhere)

    def note(self, event: Event) -> None:
        """Add what an event tells of the end of a run."""
        if event.kind in ("finished", "failed", "elsewhere", "retried"):
            getattr(self, event.kind).append(event.key)


class Engine(Protocol):
    """Runs what it is given and writes it into the store."""

    def run_all(self, store: Store, runs: Sequence[Run], *, function: str, listen: Listen) -> bool:
        """Run all; True, or False if the user stopped it."""


def run_sweep(
    store: Store,
    runs: Sequence[Run],
    engine: Engine,
    *,
    function: str = TRAIN_RUN,
    retry: bool = False,
    listen: Listen = lambda event: None,
) -> Summary:
    """Run what is not finished yet.

    Args:
        store: Where the results go; what it holds already is not run again.
        runs: What to run.
        engine: Who runs it.
        function: What trains a run, as module:function; one with an argument `shared_prefix` gets what runs share.
        retry: Also run again what failed before.
        listen: Called with every event, in this process.
    """
    summary, todo = Summary(), []
    for run in runs:
        state = store.state(run.key)
        if state == "finished":
            summary.finished_before.append(run.key)
        elif state == "failed" and not retry:
            summary.failed_before.append(run.key)
        else:
            store.forgive(run.key)
            todo.append(run)

    def hear(event: Event) -> None:
        summary.note(event)
        listen(event)

    if todo and takes_shared_prefix(function):
        todo = shared_prefix.prepare(store, todo)
    with _stopped_politely():
        summary.interrupted = bool(todo) and not engine.run_all(store, todo, function=function, listen=hear)
    if not summary.interrupted:
        shared_prefix.forget(store)
    return summary


@contextmanager
def _stopped_politely() -> Iterator[None]:
    """Take SIGTERM (`kill`, `timeout`, a batch system) for Ctrl-C inside the block: workers end, claims are given back.

    A process that ignores it, or has a handler of its own, keeps that; so does a thread, which cannot set one.
    """
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def execute_run(store: Store, run: Run, function: str, tell: Listen, **options: Any) -> Event:
    """Claim one run, train it in this process and write its rows; return how it ended. `options` go to the function.

    A run that raises is recorded as failed. Stopped from outside, it gives its claim back and keeps its checkpoint.
    """
    claim = claim_or_tell(store, run)
    if isinstance(claim, Event):
        return claim
    with beating({claim}):
        try:
            folder = store.checkpoint(run.key)
            folder.mkdir(exist_ok=True)
            tell(Event("started", run.key))
            options |= shared_prefix_of(store, run, function)
            rows = find(function)(run, folder, progress=lambda row: tell(Event("row", run.key, row)), **options)
            published = store.finish(claim, run, rows)
        except Exception as error:
            _record(store, claim, run, error)
            return Event("failed", run.key, text=_last_line(error))
        except BaseException:  # Ctrl-C or a polite end of the process: the run goes on another time
            claim.release()
            raise
    return Event("finished" if published else "elsewhere", run.key, dict(rows[-1]) if rows else {})


def shared_prefix_of(store: Store, run: Run, function: str) -> dict[str, Any]:
    """Return the argument that tells a function of the prefix that a sweep shares, if it takes one."""
    folder = shared_prefix.folder_of(store, run) if takes_shared_prefix(function) else None
    return {} if folder is None else {"shared_prefix": folder}


def takes_shared_prefix(function: str) -> bool:
    """Return whether a function can go on from what runs have in common: it has an argument `shared_prefix`.

    Example:
        >>> takes_shared_prefix(TRAIN_RUN), takes_shared_prefix("os:getcwd")
        (True, False)
    """
    return "shared_prefix" in inspect.signature(find(function)).parameters


def claim_or_tell(store: Store, run: Run) -> Claim | Event:
    """Claim a run, or tell why it is not to be run here: somebody works on it, or ended it since we looked."""
    claim = store.claim(run)
    if claim is None:
        return Event("elsewhere", run.key)
    if (state := store.state(run.key)) != "open":
        claim.release()
        return Event(state, run.key)
    return claim


def _record(store: Store, claim: Any, run: Run, error: Exception) -> None:
    try:
        store.fail(claim, run, "".join(traceback.format_exception(error)))
    except OSError:  # a full disk: then nothing can be recorded, and the run stays open
        claim.release()


def _last_line(error: Exception) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def find(function: str) -> Callable[..., list[Row]]:
    """Return the function of a name such as "rekindle.lab.runs.training_run:train_run".

    Raises:
        EngineError: There is no such function.
    """
    module, _, name = function.partition(":")
    try:
        found: Callable[..., list[Row]] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise EngineError(
            expected="a function as module:function that this process can import",
            got=f"{function!r} ({error})",
            fix="install its package where the workers run, or put its folder on PYTHONPATH there",
        ) from error
    return found
