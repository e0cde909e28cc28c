import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

from rekindle.files import write_whole
from rekindle.lab.runs import claim as claims
from rekindle.lab.runs.execute import Event, execute_run, run_sweep
from rekindle.lab.runs.rows import TornWarning, columns, read_lines, to_lines
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store, StoreError, versions

RUN = Run(seed=3)
ROWS = [{"epoch": 0, "accuracy": 0.5}, {"epoch": 1, "accuracy": np.float32(0.25)}]
TINY = "tests.lab.runs.tiny:execute"


def finished(folder, run=RUN, rows=ROWS):
    store = Store(folder)
    assert store.finish(store.claim(run), run, rows)
    return store


def test_rows_come_back_with_the_fields_of_their_run(tmp_path):
    store = finished(tmp_path)
    rows = store.rows()
    assert [row["accuracy"] for row in rows] == [0.5, 0.25]
    assert all(row["key"] == RUN.key and row["seed"] == 3 and row["data"] == "digits" for row in rows)
    assert store.state(RUN.key) == "finished"
    assert store.read_run(RUN.key)["versions"].keys() >= {"torch", "python", "rekindle", "platform"}
    assert Run.from_dict(store.read_run(RUN.key)["run"]) == RUN


def test_a_finished_run_leaves_no_claim_and_no_checkpoint(tmp_path):
    store = Store(tmp_path)
    claim = store.claim(RUN)
    store.checkpoint(RUN.key).mkdir()
    store.finish(claim, RUN, ROWS)
    assert {path.name for path in store.path(RUN.key).iterdir()} == {"run.json", "rows.jsonl", "done.json"}


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(StoreError, match="holds none"):
        Store(tmp_path).rows()


@pytest.mark.parametrize("cut", range(1, 25))
def test_a_torn_last_line_is_dropped_with_a_warning(tmp_path, cut):
    path = tmp_path / "rows.jsonl"
    whole = to_lines(ROWS).encode()
    last = len(to_lines(ROWS[1:]))
    path.write_bytes(whole[: -cut - 1])  # without the line's end alone, it is still whole: see below
    assert cut + 1 < last
    with pytest.warns(TornWarning, match="line 2 torn"):
        assert read_lines(path) == ROWS[:1]


def test_a_missing_line_end_is_no_torn_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(to_lines(ROWS).rstrip("\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_lines(path) == ROWS


@pytest.mark.parametrize("rubbish", [b"\0" * 40, b'{"epoch": 2, "acc', b"\xff\xfe\xfd", b"7\n", b"[1, 2]\n"])
def test_rubbish_is_no_row(tmp_path, rubbish):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(to_lines(ROWS).encode() + rubbish)
    with pytest.warns(TornWarning, match="line 3"):
        assert read_lines(path) == ROWS


def test_a_run_with_a_torn_file_counts_as_open(tmp_path):
    store = finished(tmp_path)
    path = store.path(RUN.key) / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.warns(TornWarning, match="counts as open"):
        assert store.state(RUN.key) == "open"
    with pytest.warns(TornWarning):
        assert store.rows() == []


def test_a_torn_marker_is_no_marker(tmp_path):
    store = finished(tmp_path)
    (store.path(RUN.key) / "done.json").write_text('{"rows": 2, "by')
    assert store.state(RUN.key) == "open"


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    write_whole(path, "old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_full_disk_when_claiming_leaves_no_claim(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(claims.json, "dump", full)
        with pytest.raises(OSError, match="No space"):
            claims.take(tmp_path / "a")
    assert claims.take(tmp_path / "a") is not None


def test_columns():
    made = columns([{"a": 1, "m": "fire", "b": 1}, {"a": 2, "m": "none", "c": True}])
    assert made["a"].dtype.kind == "i" and made["a"].tolist() == [1, 2]
    assert np.isnan(made["b"][1]) and made["m"].tolist() == ["fire", "none"]
    assert made["c"].tolist() == [None, True]


# --- claims ---


def test_who_lives_keeps_the_claim(tmp_path):
    first = claims.take(tmp_path)
    assert first.holds and claims.take(tmp_path) is None
    first.release()
    second = claims.take(tmp_path)
    assert second.holds and list(tmp_path.iterdir()) == [second.path]


def held_by(folder, **changes):
    """A claim file as another process, with these differences, would have left it."""
    claim = claims.take(folder)
    owner = json.loads(claim.path.read_text())
    claim.path.write_text(json.dumps({**owner, **changes}))
    return claim


def test_a_dead_process_is_taken_over_at_once(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    old = held_by(tmp_path, pid=child.pid)
    new = claims.take(tmp_path)
    assert new.holds and not old.holds
    old.release()  # of somebody who wakes up late: it must not free what is not his any more
    assert new.holds and claims.take(tmp_path) is None


def test_a_process_number_that_was_used_again_is_another_process(tmp_path):
    held_by(tmp_path, started="1")
    assert claims.take(tmp_path) is not None


@pytest.mark.parametrize(("age", "taken"), [(30, False), (90, True)])
def test_another_machine_is_judged_by_its_heartbeat(tmp_path, age, taken):
    claim = held_by(tmp_path, machine="elsewhere", pid=1)
    os.utime(claim.path, (time.time() - age,) * 2)
    assert (claims.take(tmp_path) is not None) == taken


def test_a_claim_that_was_never_written_ends_by_its_age(tmp_path):
    path = tmp_path / "claim.000001"
    path.touch()
    assert claims.take(tmp_path) is None
    os.utime(path, (time.time() - 90,) * 2)
    assert claims.take(tmp_path) is not None


def test_the_heart_beats(tmp_path):
    claim = claims.take(tmp_path)
    os.utime(claim.path, (1, 1))
    with claims.beating({claim}, every=0.01):
        until = time.monotonic() + 10
        while claim.path.stat().st_mtime < 1000 and time.monotonic() < until:
            time.sleep(0.01)
    assert claim.path.stat().st_mtime > 1000


def test_a_lost_claim_publishes_nothing(tmp_path):
    store = Store(tmp_path)
    late = store.claim(RUN)
    late.path.write_text(json.dumps({**json.loads(late.path.read_text()), "started": "1"}))
    new = store.claim(RUN)
    assert new is not None and not store.finish(late, RUN, [{"epoch": 9}])
    assert store.state(RUN.key) == "open"
    assert store.finish(new, RUN, ROWS) and len(store.rows()) == 2


def compete(folder, barrier, results):
    barrier.wait()
    for number in range(20):
        if claims.take(folder / str(number)) is not None:
            results.put(number)
    barrier.wait()  # the dead lose their claims: stay until all have tried
    results.close()


def test_only_one_of_many_takes_over(tmp_path):
    """Four processes at once, on folders whose owner is dead: each is taken once."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    for number in range(20):
        held_by(tmp_path / str(number), pid=child.pid)
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.Queue()
    others = [context.Process(target=compete, args=(tmp_path, barrier, results)) for _ in range(4)]
    for other in others:
        other.start()
    taken = sorted(results.get(timeout=30) for _ in range(20))
    for other in others:
        other.join(30)
    assert taken == list(range(20)) and results.empty()


# --- one run ---


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


class Recorder:
    def run_all(self, store, runs, *, function, listen):
        self.given = list(runs)
        return True


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


def test_versions_are_texts():
    assert all(isinstance(value, str) for value in versions().values())
