"""The local engine: a few processes of this machine, each of which runs one run after the other.

A worker that dies takes only its run with it: another one goes on from that run's checkpoint. No run is started while
memory is short, except the only one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Annotated, Any

from pydantic import Field

from rekindle.lab.runs.engines.memory import available_memory
from rekindle.lab.runs.execute import TRAIN_RUN, Event, Listen, execute_run
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.methods.frozen_settings import settings

GIGABYTE = 1e9
PATIENCE = 5.0  # seconds that a worker has to end politely
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@settings
class LocalEngine:
    """Processes of this machine.

    Args:
        workers: How many at once; one for each core (and thread of a run) when left out.
        retries: How often a run is tried again whose worker died.
        free_memory: Gigabytes that must be free for each run that is started or has just been started.
    """

    workers: Annotated[int, Field(ge=1)] | None = None
    retries: Annotated[int, Field(ge=0)] = 2
    free_memory: Annotated[float, Field(ge=0)] = 1.0

    def run_all(self, store: Store, runs: Sequence[Run], *, function: str = TRAIN_RUN, listen: Listen) -> bool:
        """Run all; True, or False if the user stopped it with Ctrl-C."""
        pool = Pool(store, function, listen, retries=self.retries, memory_bound=self.free_memory * GIGABYTE)
        most = self.workers or max(1, cores() // max(run.threads for run in runs))
        try:
            pool.run(runs, most)
        except KeyboardInterrupt:
            return False
        finally:
            pool.close()
        return True


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Worker:
    """One process, the pipe to it, and the run that it has."""

    def __init__(self, folder: str, function: str) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks of torch
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, folder, function), daemon=True)
        with quiet_start():
            self.process.start()
        theirs.close()  # now its end of the pipe closes when it dies
        self.run: Run | None = None
        self.is_young = False  # has not told of its run yet, so that the memory it will take is not taken yet


class Pool:
    """Workers and the runs that wait for them.

    Args:
        store: Where the results go.
        function: What trains a run, as module:function.
        listen: Called with every event.
        retries: How often a run is tried again whose worker died.
        memory_bound: Bytes that must be free for each run that is started or has just been started.
        available: Tells the bytes that are free.
    """

    def __init__(
        self,
        store: Store,
        function: str,
        listen: Listen,
        *,
        retries: int = 2,
        memory_bound: float = 0,
        available: Callable[[], float] = available_memory,
    ) -> None:
        self.store, self.function, self.listen = store, function, listen
        self.retries, self.memory_bound, self.available = retries, memory_bound, available
        self.workers: list[Worker] = []
        self.waiting: deque[Run] = deque()
        self.deaths: Counter[str] = Counter()
        self._told_of_memory = False

    @property
    def busy(self) -> list[Worker]:
        """The workers that have a run."""
        return [worker for worker in self.workers if worker.run is not None]

    def run(self, runs: Sequence[Run], most: int) -> None:
        """Run all, at most so many at once."""
        self.waiting.extend(runs)
        while self.waiting or self.busy:
            while self.waiting and len(self.busy) < most and self.has_memory():
                self._start(self.waiting.popleft())
            ready = wait([worker.pipe for worker in self.workers], timeout=1.0)
            for worker in [worker for worker in self.workers if worker.pipe in ready]:
                self._hear(worker)

    def has_memory(self) -> bool:
        """Return whether another run may start; the only one always may."""
        young = sum(worker.is_young for worker in self.busy)
        enough = not self.busy or self.available() >= self.memory_bound * (1 + young)
        if not enough and young == 0 and not self._told_of_memory:
            self.listen(Event("short_of_memory", self.waiting[0].key, text="waiting for memory"))
        self._told_of_memory = not enough and (young == 0 or self._told_of_memory)
        return enough

    def _start(self, run: Run) -> None:
        idle = next((worker for worker in self.workers if worker.run is None), None)
        worker = idle or Worker(str(self.store.folder), self.function)
        if idle is None:
            self.workers.append(worker)
        worker.run, worker.is_young = run, True
        with suppress(OSError):  # it died meanwhile: its pipe tells
            worker.pipe.send(run.to_dict())

    def _hear(self, worker: Worker) -> None:
        try:
            event: Event = worker.pipe.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        worker.is_young &= event.kind == "started"
        if event.kind in ("finished", "failed", "elsewhere"):
            worker.run = None
        self.listen(event)

    def _bury(self, worker: Worker) -> None:
        """Take out a dead worker; its run is tried again at the end of the queue, or recorded as failed."""
        self.workers.remove(worker)
        worker.process.join()
        worker.pipe.close()
        if (run := worker.run) is None:
            return
        self.deaths[run.key] += 1
        text = f"its process died ({_cause(worker.process.exitcode)})"
        if self.deaths[run.key] <= self.retries:
            self.waiting.append(run)
            self.listen(Event("retried", run.key, text=text))
        else:
            self._give_up(run, f"{text} {self.deaths[run.key]} times")

    def _give_up(self, run: Run, text: str) -> None:
        claim = self.store.claim(run)
        if claim is not None:
            self.store.fail(claim, run, text)
        self.listen(Event("failed" if claim is not None else "elsewhere", run.key, text=text))

    def close(self) -> None:
        """End all workers: the idle ones leave, the others give their claims back and keep their checkpoints."""
        for worker in self.workers:
            with suppress(OSError):
                worker.process.terminate() if worker.run else worker.pipe.send(None)
        for worker in self.workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
        self.workers.clear()


def serve(pipe: Connection, folder: str, function: str) -> None:
    """Run what comes through the pipe until it closes: the whole life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one decides
    signal.signal(signal.SIGTERM, _leave)

    def tell(event: Event) -> None:
        with suppress(OSError):  # the first process is gone: the run is finished and written all the same
            pipe.send(event)

    store = Store(folder)
    with suppress(EOFError, OSError):
        while (fields := pipe.recv()) is not None:
            tell(execute_run(store, Run(**fields), function, tell))


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


@contextmanager
def quiet_start() -> Iterator[None]:
    """Start a process with one thread each and deaf to Ctrl-C from its first moment; both are inherited."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _cause(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    killed = " (often: out of memory)" if -code == signal.SIGKILL else ""
    return f"signal {signal.Signals(-code).name}{killed}"
