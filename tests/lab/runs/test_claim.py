"""Claims: one process at a time works on a run, and the dead leave theirs."""

import json
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from rekindle.lab.runs import claim as claims
from rekindle.lab.runs.spec import Run

RUN = Run(seed=3)


def test_a_full_disk_when_claiming_leaves_no_claim(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(claims.json, "dump", full)
        with pytest.raises(OSError, match="No space"):
            claims.take(tmp_path / "a")
    assert claims.take(tmp_path / "a") is not None


def test_who_lives_keeps_the_claim(tmp_path):
    first = claims.take(tmp_path)
    assert first.holds and claims.take(tmp_path) is None
    first.release()
    second = claims.take(tmp_path)
    assert second.holds and list(tmp_path.iterdir()) == [second.path]


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


def held_by(folder, **changes):
    """A claim file as another process, with these differences, would have left it."""
    claim = claims.take(folder)
    owner = json.loads(claim.path.read_text())
    claim.path.write_text(json.dumps({**owner, **changes}))
    return claim


def compete(folder, barrier, results):
    barrier.wait()
    for number in range(20):
        if claims.take(folder / str(number)) is not None:
            results.put(number)
    barrier.wait()  # the dead lose their claims: stay until all have tried
    results.close()
