"""The stacking engine: seeds together where they can be, everything else as always."""

import multiprocessing
import os
import signal
import time

import pytest

from rekindle.errors import SettingsError
from rekindle.lab.runs import execute
from rekindle.lab.runs.engines import stacking
from rekindle.lab.runs.engines.local import LocalEngine
from rekindle.lab.runs.engines.stacking import StackingEngine, stacks_of, train_stack
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.lab.runs.training_run import train_run

SMALL = {
    "protocol": "rounds:blocks=2,repeats=1,steps=5",
    "data": "synthetic:signal=2,test=256",
    "model": "mlp_synthetic",
    "optimizer": "sgd:lr=0.02",
}
ALONE = {"protocol": "warm_start:before=1,after=1,fraction=0.5", "data": "digits", "model": "mlp:hidden=8"}


def runs_of(count=3, **given):
    return [Run.from_dict({**SMALL, **given, "seed": seed}) for seed in range(count)]


def test_stacks_and_the_rest():
    penalized = runs_of(methods="l2:strength=0.1")
    lonely, recycled = runs_of(1, methods="fire"), runs_of(methods="redo")
    stacks, rest = stacks_of([*runs_of(), *lonely, *penalized, *recycled])
    assert stacks == [runs_of(), penalized] and rest == [*lonely, *recycled]


def test_large_groups_are_divided(monkeypatch):
    monkeypatch.setattr(stacking, "MOST", 2)
    stacks, rest = stacks_of(runs_of(5))
    assert [len(stack) for stack in stacks] == [2, 2] and [run.seed for run in rest] == [4]


def test_a_sweep_has_the_rows_that_it_has_without(tmp_path):
    runs = [*runs_of(methods="l2:strength=0.1"), Run.from_dict(ALONE)]
    store, heard = Store(tmp_path), []
    summary = execute.run_sweep(store, runs, StackingEngine(LocalEngine(workers=1), 1), listen=heard.append)
    assert sorted(summary.finished) == sorted(run.key for run in runs)
    assert heard[0] == execute.Event("started", runs[0].key, text="with 2 more seeds")
    for run in runs:
        alone, together = train_run(run, None), store.rows(run.key)
        assert [row["loss"] for row in together] == pytest.approx([row["loss"] for row in alone], abs=1e-4)
    assert not list(tmp_path.glob("*/claim.*"))
    again = execute.run_sweep(store, runs, StackingEngine(LocalEngine(workers=1), 1))
    assert len(again.finished_before) == len(runs) and not again.finished


def test_what_falls_out_of_a_stack_is_run_alone(tmp_path):
    """At this learning rate no seed has a finite loss: each fails by itself, with its reason."""
    runs, store = runs_of(2, optimizer="sgd:lr=1e30"), Store(tmp_path)
    summary = execute.run_sweep(store, runs, StackingEngine(LocalEngine(workers=1), 1))
    assert sorted(summary.failed) == sorted(run.key for run in runs)
    assert all("a finite loss" in store.failure(run.key) for run in runs)


def test_a_run_of_somebody_else_is_left_to_them(tmp_path):
    runs, store = runs_of(2), Store(tmp_path)
    claim = store.claim(runs[0])
    events = {event.key: event.kind for event in train_stack(str(tmp_path), [run.to_dict() for run in runs])}
    assert events == {runs[0].key: "elsewhere", runs[1].key: "finished"}
    assert claim.holds and store.state(runs[0].key) == "open"


def test_claims_are_given_back_when_a_stack_fails(tmp_path, monkeypatch):
    def refuse(runs):
        raise SettingsError(expected="another stack", got="this one", fix="none")

    monkeypatch.setattr(stacking, "run_stacked", refuse)
    with pytest.raises(SettingsError):
        train_stack(str(tmp_path), [run.to_dict() for run in runs_of(2)])
    assert not list(tmp_path.glob("*/claim.*"))


class Recorder:
    """An engine that only notes what it is given."""

    def __init__(self):
        self.given = []

    def run_all(self, store, runs, *, function, listen):
        self.given += runs
        return True


def die(folder, stack):
    os.kill(os.getpid(), signal.SIGKILL)


def fill_the_disk(folder, stack):
    raise OSError(28, "No space left on device")


def test_a_stack_that_fails_in_any_way_stops_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(stacking, "train_stack", fill_the_disk)
    others = Recorder()
    assert StackingEngine(others, 1).run_all(Store(tmp_path), runs_of(), function=execute.TRAIN_RUN, listen=print)
    assert others.given == runs_of()


def test_a_dead_process_leaves_all_runs_to_the_other_engine(tmp_path, monkeypatch):
    monkeypatch.setattr(stacking, "train_stack", die)
    runs, others = [*runs_of(), *runs_of(methods="l2:strength=0.1")], Recorder()
    assert StackingEngine(others, 1).run_all(Store(tmp_path), runs, function=execute.TRAIN_RUN, listen=print)
    assert others.given == runs


def interrupt(folder, stack):
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(600)


def test_ctrl_c_ends_all_stacks_and_begins_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(stacking, "train_stack", interrupt)
    before, others = signal.signal(signal.SIGINT, signal.default_int_handler), Recorder()
    try:
        ended = StackingEngine(others, 1).run_all(Store(tmp_path), runs_of(), function=execute.TRAIN_RUN, listen=print)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not ended and not others.given and not multiprocessing.active_children()


def test_another_function_is_not_stacked(tmp_path):
    others = Recorder()
    StackingEngine(others).run_all(Store(tmp_path), runs_of(), function="tiny:execute", listen=print)
    assert others.given == runs_of()
