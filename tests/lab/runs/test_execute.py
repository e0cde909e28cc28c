"""One run, from its claim to its rows or its traceback."""

import multiprocessing
import os
import signal
import time

import pytest

from rekindle.lab.runs.execute import Event, execute_run, run_sweep
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store

RUN = Run(seed=3)


TINY = "tests.lab.runs.tiny:execute"


def test_execute_run_tells_and_writes(tmp_path):
    told = []
    event = execute_run(Store(tmp_path), RUN, TINY, told.append)
    assert event == Event("finished", RUN.key, {"stage": 0, "epoch": 2, "accuracy": 3.2})
    assert [e.kind for e in told] == ["started", "row", "row", "row"]
    assert [row["accuracy"] for row in Store(tmp_path).rows()] == [3, 3.1, 3.2]


def test_a_failed_run_keeps_its_traceback_and_waits_for_retry(tmp_path):
    run, store = Run(model="raise", seed=1), Store(tmp_path)
    event = execute_run(store, run, TINY, lambda event: None)
    assert event.kind == "failed" and event.text == "RuntimeError: seed 1 went wrong"
    assert store.state(run.key) == "failed" and "in _raise" in store.failure(run.key)
    engine = Recorder()
    summary = run_sweep(store, [run, RUN], engine)
    assert summary.failed_before == [run.key] and engine.given == [RUN]
    run_sweep(store, [run], engine, retry=True)
    assert engine.given == [run] and store.state(run.key) == "open"


def test_a_function_that_is_not_there_is_a_failure_in_three_parts(tmp_path):
    store = Store(tmp_path)
    assert execute_run(store, RUN, "no_such_module:f", lambda event: None).kind == "failed"
    assert "what to do:" in store.failure(RUN.key)


def test_a_stopped_run_stays_open_and_unclaimed(tmp_path):
    store = Store(tmp_path)

    def stop(event):
        if event.kind == "row":
            (store.checkpoint(RUN.key) / "kept").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute_run(store, RUN, TINY, stop)
    assert store.state(RUN.key) == "open" and (store.checkpoint(RUN.key) / "kept").exists()
    assert store.claim(RUN) is not None


def test_a_killed_process_leaves_a_run_that_can_be_taken(tmp_path):
    run, store = Run(model="hang"), Store(tmp_path)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=execute_run, args=(store, run, TINY, print))
    child.start()
    until = time.monotonic() + 30
    while not (tmp_path / "log").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert execute_run(store, run, TINY, print).kind == "elsewhere"
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    (tmp_path / "go").touch()
    assert execute_run(store, run, TINY, lambda event: None).kind == "finished"


class Recorder:
    def run_all(self, store, runs, *, function, listen):
        self.given = list(runs)
        return True
