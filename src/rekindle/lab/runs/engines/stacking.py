"""An engine that trains the seeds of one setting together where they can be, and leaves the rest to another engine.

What falls out of a stack - a process that died, a seed whose loss is not finite - is run by the other engine as well,
one by one, so that stacking changes the time and the last bits of a result, and nothing else.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any

from rekindle.errors import SettingsError
from rekindle.lab.runs.claim import beating
from rekindle.lab.runs.engines.local import cores, quiet_start
from rekindle.lab.runs.execute import TRAIN_RUN, Engine, Event, Listen, claim_or_tell
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.stacked import check_stackable, run_stacked
from rekindle.lab.runs.store import Store

MOST = 25  # seeds of a stack: one that dies loses no more, and several processes have work


@dataclass(frozen=True)
class StackingEngine:
    """Processes of this machine, each of which trains one stack after the other.

    Args:
        others: Who runs what cannot be stacked.
        workers: How many processes at once; one for each core when left out.
    """

    others: Engine
    workers: int | None = None

    def run_all(self, store: Store, runs: Sequence[Run], *, function: str = TRAIN_RUN, listen: Listen) -> bool:
        """Run all; True, or False if the user stopped it with Ctrl-C."""
        stacks, rest = stacks_of(runs) if function == TRAIN_RUN else ([], list(runs))
        workers = self.workers or cores()
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
        waiting, running = stacks[::-1], dict[Future[list[Event]], list[Run]]()
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    stack = waiting.pop()
                    listen(Event("started", stack[0].key, text=f"with {len(stack) - 1} more seeds"))
                    running[_submit(pool, store, stack)] = stack
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    rest += _heard(future, running.pop(future), listen)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            return False
        finally:
            pool.shutdown(cancel_futures=True)
        return self.others.run_all(store, rest, function=function, listen=listen) if rest else True


def _submit(pool: ProcessPoolExecutor, store: Store, stack: Sequence[Run]) -> Future[list[Event]]:
    try:
        with quiet_start():
            return pool.submit(train_stack, str(store.folder), [run.to_dict() for run in stack])
    except BrokenProcessPool as error:  # a process of another stack died: nothing more can be given to this pool
        failed = Future[list[Event]]()
        failed.set_exception(error)
        return failed


def _heard(future: Future[list[Event]], stack: Sequence[Run], listen: Listen) -> list[Run]:
    """Tell what came of a stack; return what must be run one by one."""
    try:
        events = future.result()
    except Exception:  # whatever it was: alone, each run ends or fails with its own reason, and stops no other
        return list(stack)
    for event in events:
        listen(event)
    return []


def stacks_of(runs: Sequence[Run]) -> tuple[list[list[Run]], list[Run]]:
    """Return the stacks that runs can be trained as, and the runs that cannot be.

    Example:
        >>> base = {"protocol": "rounds", "data": "synthetic", "model": "mlp_synthetic"}
        >>> stacks, rest = stacks_of([Run(**base, seed=seed) for seed in range(3)] + [Run(model="cnn")])
        >>> [len(stack) for stack in stacks], [run.model for run in rest]
        ([3], ['cnn'])
    """
    alike: dict[Run, list[Run]] = {}
    for run in runs:
        alike.setdefault(replace(run, seed=0), []).append(run)
    parts = [same[start : start + MOST] for same in alike.values() for start in range(0, len(same), MOST)]
    stacks = [part for part in parts if len(part) > 1 and _can_be_stacked(part)]
    return stacks, [run for part in parts if part not in stacks for run in part]


def _can_be_stacked(runs: Sequence[Run]) -> bool:
    try:
        check_stackable(runs)
    except SettingsError:
        return False
    return True


def train_stack(folder: str, stack: Sequence[dict[str, Any]]) -> list[Event]:
    """Claim the runs of a stack, train them together in this process and write their rows.

    Raises:
        RekindleError: They cannot be trained together after all; all claims are given back.
    """
    store, events = Store(folder), []
    claims, mine = {}, []
    for run in (Run(**fields) for fields in stack):
        claim = claim_or_tell(store, run)
        if isinstance(claim, Event):
            events.append(claim)
        else:
            claims[run.key] = claim
            mine.append(run)
    with beating(set(claims.values())):
        try:
            found = run_stacked(mine) if mine else {}
            for run in mine:
                rows = found[run.key]
                kept = store.finish(claims.pop(run.key), run, rows)
                events.append(Event("finished" if kept else "elsewhere", run.key, dict(rows[-1])))
        finally:
            for claim in claims.values():
                claim.release()
    return events
