"""The Ray engine: runs as tasks of an existing cluster; the driver, this process, gathers and writes the results.

Nodes need not share a file system. Where they see the store, a run that lost its worker or its node goes on from its
checkpoint, and runs share what they have in common (`rekindle.lab.runs.shared_prefix`); elsewhere it starts again.
Each run is claimed by the driver, so that two drivers never run the same one.
"""

from __future__ import annotations

import importlib
import logging
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rekindle.lab.runs import claim as claims
from rekindle.lab.runs.claim import Claim, beating
from rekindle.lab.runs.execute import TRAIN_RUN, EngineError, Event, Listen, claim_or_tell, find, shared_prefix_of
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.methods.frozen_settings import settings

QUEUED = 2  # tasks that wait on the cluster for each one that runs: no node is idle, and other drivers find work


@settings
class RayEngine:
    """A Ray cluster.

    Args:
        address: Of the cluster; "auto" finds the one that this machine belongs to, "local" starts one here.
        cpus: Cores of one run.
        gpus: GPUs of one run; parts share one.
        memory: Gigabytes that one run needs, so that Ray places no more on a node than fit; not counted when left out.
        retries: How often a run is tried again whose worker or node died.
        environment: Environment variables of the workers.
        wait_for_nodes: Do not complain if no node has these resources now: more will come.
    """

    address: str = "auto"
    cpus: Annotated[float, Field(gt=0)] = 1
    gpus: Annotated[float, Field(ge=0)] = 0
    memory: Annotated[float, Field(gt=0)] | None = None
    retries: Annotated[int, Field(ge=0)] = 3
    environment: dict[str, str] = Field(default_factory=dict)
    wait_for_nodes: bool = False

    def run_all(self, store: Store, runs: Sequence[Run], *, function: str = TRAIN_RUN, listen: Listen) -> bool:
        """Run all; True, or False if the user stopped it with Ctrl-C."""
        with connected(self.address) as ray:
            if not self.wait_for_nodes:
                self._check_nodes(ray)
            driver = Driver(self, ray, store, function, listen)
            try:
                driver.run(runs)
            except KeyboardInterrupt:
                return False
            finally:
                driver.close()
        return True

    def resources(self) -> dict[str, float]:
        """Return what one run needs, in Ray's words."""
        needs = {"CPU": self.cpus, "GPU": self.gpus, "memory": (self.memory or 0) * 1e9}
        return {name: amount for name, amount in needs.items() if amount}

    def slots(self, ray: Any) -> int:
        """Return how many runs the cluster takes at once."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(int(min(node.get(name, 0) / amount for name, amount in self.resources().items())) for node in nodes)

    def _check_nodes(self, ray: Any) -> None:
        if not self.slots(ray):
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            has = [{name: node.get(name, 0) for name in self.resources()} for node in nodes]
            raise EngineError(
                expected=f"a node with {self.resources()} for one run",
                got=f"nodes with {has}",
                fix="ask for less, add such a node, or set wait_for_nodes if one will come",
            )


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a cluster, unless this process is connected already, and leave it as it was.

    Raises:
        EngineError: Ray is not installed, or there is no cluster.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise EngineError(
            expected="the package ray, for the engine ray",
            got="an installation without it",
            fix="pip install 'rekindle[ray]', here and on every node; or leave --engine out for local processes",
        ) from None
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except ConnectionError as error:
            raise EngineError(
                expected=f"a Ray cluster at {address!r}",
                got=str(error).partition("\n")[0],
                fix="start one with `ray start --head`, give its address, or take the address local",
            ) from None
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


class Driver:
    """The tasks on the cluster and the claims on their runs.

    Args:
        engine: Resources and retries.
        ray: The module, connected.
        store: Where the results go.
        function: What trains a run, as module:function.
        listen: Called with every event.
    """

    def __init__(self, engine: RayEngine, ray: Any, store: Store, function: str, listen: Listen) -> None:
        self.engine, self.ray, self.store, self.listen = engine, ray, store, listen
        needs = engine.resources()
        options = {"num_cpus": needs.pop("CPU"), "num_gpus": needs.pop("GPU", 0), **needs}
        self.task = ray.remote(train).options(
            **options,
            max_retries=engine.retries,  # for workers and nodes that die; what a run raises comes back as a value
            retry_exceptions=False,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": str(max(1, int(engine.cpus))), **engine.environment}},
        )
        self.function = function
        self.tasks: dict[Any, tuple[Run, Claim]] = {}
        self.claims: set[Claim] = set()

    def run(self, runs: Sequence[Run]) -> None:
        """Run all; what dies on the way is tried again by Ray on another worker or node."""
        waiting = deque(runs)
        with beating(self.claims):
            while waiting or self.tasks:
                most = QUEUED * max(1, self.engine.slots(self.ray))
                while waiting and len(self.tasks) < most:
                    self._submit(waiting.popleft())
                if self.tasks:
                    ready, _ = self.ray.wait(list(self.tasks), timeout=1.0)
                    for task in ready:
                        self._gather(task)

    def _submit(self, run: Run) -> None:
        claim = claim_or_tell(self.store, run)
        if isinstance(claim, Event):
            self.listen(claim)
            return
        self.claims.add(claim)
        seen = (str(claim.path.resolve()), claim.path.read_text("utf-8"))
        self.tasks[self.task.remote(run.to_dict(), self.function, seen)] = run, claim
        self.listen(Event("started", run.key))

    def _gather(self, task: Any) -> None:
        run, claim = self.tasks.pop(task)
        try:
            result = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            text = f"lost its worker or node {1 + self.engine.retries} times: {type(error).__name__}: {error}"
            result = {"failure": text}
        try:
            event = self._write(run, claim, result)
        finally:
            self.claims.discard(claim)
        self.listen(event)

    def _write(self, run: Run, claim: Claim, result: dict[str, Any]) -> Event:
        if "failure" in result:
            self.store.fail(claim, run, result["failure"])
            return Event("failed", run.key, text=result["failure"].strip().rpartition("\n")[2])
        rows = result["rows"]
        written = self.store.finish(claim, run, rows)
        return Event("finished" if written else "elsewhere", run.key, dict(rows[-1]) if rows else {})

    def close(self) -> None:
        """Take back what still runs, and the claims."""
        for task, (_, claim) in self.tasks.items():
            with suppress(Exception):  # the cluster may be gone: then nothing runs any more
                self.ray.cancel(task, force=True)
            claim.release()
        self.tasks.clear()


# --- on the nodes ---


def train(fields: dict[str, Any], function: str, claimed: tuple[str, str]) -> dict[str, Any]:
    """Train one run on a node and return its rows, or the traceback of what it raised.

    Args:
        fields: Of the run.
        function: What trains it, as module:function.
        claimed: Path and content of the driver's claim: a node that reads the same there sees the store.
    """
    try:
        run = Run(**fields)
        shared = shared_prefix_of(Store(Path(claimed[0]).parents[1]), run, function) if _sees(*claimed) else {}
        with _checkpoint_folder(*claimed) as folder:
            return {"rows": find(function)(run, folder, progress=None, **shared)}
    except Exception as error:
        return {"failure": "".join(traceback.format_exception(error))}


@contextmanager
def _checkpoint_folder(path: str, content: str) -> Iterator[Path]:
    """Yield the run's own checkpoint folder if this node sees the store, else one that goes when the run ends."""
    claim = _take_checkpoint(Path(path).parent / "checkpoint") if _sees(path, content) else None
    if claim is None:
        with tempfile.TemporaryDirectory(prefix="rekindle-") as folder:
            yield Path(folder)
        return
    with beating({claim}):
        try:
            yield claim.path.parent
        finally:
            claim.release()


def _sees(path: str, content: str) -> bool:
    try:
        return Path(path).read_text("utf-8") == content
    except OSError:
        return False


def _take_checkpoint(folder: Path) -> Claim | None:
    """Claim a checkpoint folder; wait until a node that Ray gave up is silent for certain."""
    until = time.monotonic() + 1.5 * claims.SILENCE
    while (claim := claims.take(folder)) is None and time.monotonic() < until:
        time.sleep(0.2)
    return claim
