import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from rekindle.errors import SettingsError
from rekindle.lab.runs.engines.local import LocalEngine, Pool
from rekindle.lab.runs.execute import run_sweep
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from tests.lab.runs.tiny import read_log

TINY = "tests.lab.runs.tiny:execute"
ROOT = Path(__file__).resolve().parents[4]


def sweep(folder, runs, **settings):
    events = []
    engine = LocalEngine(**{"workers": 2, "free_memory": 0, **settings})
    summary = run_sweep(Store(folder), runs, engine, function=TINY, listen=events.append)
    return summary, events


def test_failures_and_deaths_do_not_stop_the_others(tmp_path):
    good = [Run(seed=seed) for seed in range(4)]
    bad, dead, once = Run(model="raise"), Run(model="die"), Run(model="die_once")
    summary, events = sweep(tmp_path, [bad, dead, once, *good], retries=1)
    store = Store(tmp_path)
    assert sorted(summary.finished) == sorted(run.key for run in [once, *good])
    assert sorted(summary.failed) == sorted([bad.key, dead.key])
    assert Counter(summary.retried) == {dead.key: 1, once.key: 1}
    assert "SIGKILL" in store.failure(dead.key) and "2 times" in store.failure(dead.key)
    starts = Counter(entry["key"] for entry in read_log(tmp_path, "start"))
    assert starts == {bad.key: 1, dead.key: 2, once.key: 2, **{run.key: 1 for run in good}}
    assert len(store.rows()) == 3 * 5
    assert len({entry["pid"] for entry in read_log(tmp_path, "end")}) < 5, "a process runs one run after the other"
    again, _ = sweep(tmp_path, [bad, dead, once, *good])
    assert len(again.finished_before) == 5 and len(again.failed_before) == 2 and not again.finished
    assert len(read_log(tmp_path, "start")) == sum(starts.values())
    assert {event.kind for event in events} >= {"started", "row", "finished", "failed", "retried"}


def test_each_worker_has_one_thread(tmp_path):
    before = dict(os.environ)
    run_sweep(
        Store(tmp_path), [Run()], LocalEngine(workers=1), function="tests.lab.runs.engines.test_local:tell_threads"
    )
    assert Store(tmp_path).rows()[0]["omp"] == "1"
    assert dict(os.environ) == before


def tell_threads(run, folder, *, progress=None):
    return [{"omp": os.environ["OMP_NUM_THREADS"], "sigint": signal.getsignal(signal.SIGINT) == signal.SIG_IGN}]


class Clock:
    """Memory as a test wants it, and the runs that were started."""

    def __init__(self, free):
        self.free = free

    def __call__(self):
        return self.free


@pytest.mark.parametrize(
    ("free", "young", "starts"), [(0, 0, False), (9, 0, False), (10, 0, True), (19, 1, False), (20, 1, True)]
)
def test_memory_bounds_what_is_started(tmp_path, free, young, starts):
    told = []
    pool = Pool(Store(tmp_path), TINY, told.append, memory_bound=10, available=Clock(free))
    pool.waiting.append(Run())
    assert pool.has_memory(), "the only run always starts"
    pool.workers = [Busy(young=False), *[Busy(young=True)] * young]
    assert pool.has_memory() == starts
    assert [event.kind for event in told] == ([] if starts or young else ["short_of_memory"])
    pool.has_memory()
    assert len(told) <= 1, "told once"


class Busy:
    def __init__(self, young):
        self.run, self.is_young = Run(), young


def test_short_memory_runs_one_after_the_other(tmp_path):
    runs = [Run(seed=seed) for seed in range(3)]
    summary, _ = sweep(tmp_path, runs, free_memory=1e9)
    assert len(summary.finished) == 3
    assert len({entry["pid"] for entry in read_log(tmp_path, "end")}) == 1


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"retries": -1}, {"free_memory": -1}, {"speed": 1}])
def test_settings_are_checked(wrong):
    with pytest.raises(SettingsError):
        LocalEngine(**wrong)


def test_two_sweeps_at_once_run_each_run_once(tmp_path):
    runs = [Run(seed=seed) for seed in range(8)]
    with_other = threading.Thread(target=sweep, args=(tmp_path, runs[::-1]))
    with_other.start()
    sweep(tmp_path, runs)
    with_other.join()
    ends = Counter(entry["key"] for entry in read_log(tmp_path, "end"))
    assert ends == {run.key: 1 for run in runs}
    assert len(Store(tmp_path).rows()) == 24


DRIVER = """
import signal
import sys
from rekindle.lab.runs.engines.local import LocalEngine
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.lab.runs.execute import run_sweep
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
    runs = [Run(seed=seed, model="hang") for seed in range(4)]
    engine = LocalEngine(workers=2, free_memory=0)
    summary = run_sweep(Store(sys.argv[1]), runs, engine, function="tests.lab.runs.tiny:execute")
    print("interrupted", summary.interrupted)
"""


def drive(folder):
    """Start a sweep of four runs that hang until `go`, in a process group of its own; return when two hang."""
    script = folder / "drive.py"
    script.write_text(DRIVER)
    place = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    arguments = [sys.executable, str(script), str(folder)]
    child = subprocess.Popen(arguments, env=place, stdout=-1, stderr=-1, text=True, start_new_session=True)
    wait_for(lambda: len(read_log(folder, "start")) == 2)
    return child


def wait_for(met):
    until = time.monotonic() + 60
    while not met():
        assert time.monotonic() < until, "waited for a minute"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(lambda pid: os.killpg(pid, signal.SIGINT), id="ctrl-c"),  # as a terminal does: to all processes
        pytest.param(lambda pid: os.kill(pid, signal.SIGTERM), id="kill"),  # the driver alone
    ],
)
def test_it_stops_cleanly_with_its_workers_and_the_next_call_goes_on(tmp_path, stop):
    child = drive(tmp_path)
    stop(child.pid)
    said, complained = child.communicate(timeout=180)
    assert said.strip() == "interrupted True" and child.returncode == 0
    assert "Traceback" not in complained
    assert not list(tmp_path.glob("*/claim.*")) and not list(tmp_path.glob("*/failed.json"))
    finish_what_is_left(tmp_path)


def test_a_killed_sweep_loses_nothing(tmp_path):
    child = drive(tmp_path)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=180)
    finish_what_is_left(tmp_path)


def test_workers_outlive_a_killed_driver_and_keep_their_runs(tmp_path):
    child = drive(tmp_path)
    os.kill(child.pid, signal.SIGKILL)  # the driver alone
    child.wait()
    runs = [Run(seed=seed, model="hang") for seed in range(4)]
    claimed = [run for run in runs if Store(tmp_path).claim(run) is None]
    assert len(claimed) == 2
    (tmp_path / "go").touch()
    wait_for(lambda: sum(Store(tmp_path).state(run.key) == "finished" for run in claimed) == 2)
    wait_for(lambda: len(read_log(tmp_path, "end")) == 2)
    child.communicate()


@pytest.mark.slow
def test_a_real_run_whose_process_is_killed_ends_with_the_same_rows(tmp_path):
    """The rows of a run that was killed in the middle are those of one that was not, but for the time it took."""
    run = Run.from_dict({"protocol": "warm_start:images=64,before=20,after=4", "methods": "shrink_perturb", "seed": 1})
    killed = []

    def kill_once(event):
        if event.kind == "row" and not killed and event.row["epoch"] >= 3:
            [child] = [c for c in multiprocessing.active_children() if c.pid not in before]
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)

    before = {child.pid for child in multiprocessing.active_children()}
    summary = run_sweep(Store(tmp_path / "killed"), [run], LocalEngine(workers=1), listen=kill_once)
    assert summary.finished == summary.retried == [run.key] and len(killed) == 1
    run_sweep(Store(tmp_path / "whole"), [run], LocalEngine(workers=1))
    one, other = Store(tmp_path / "killed").rows(), Store(tmp_path / "whole").rows()
    assert len(one) >= 24 and [*map(timeless, one)] == [*map(timeless, other)]


def timeless(row):
    return {name: value for name, value in row.items() if "second" not in name}


def finish_what_is_left(folder):
    (folder / "go").touch()
    runs = [Run(seed=seed, model="hang") for seed in range(4)]
    summary, _ = sweep(folder, runs)
    assert len(summary.finished) == 4
    assert Counter(e["key"] for e in read_log(folder, "end")) == {run.key: 1 for run in runs}
