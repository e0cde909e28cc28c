"""`torchrun -m rekindle run`: two processes that train one run, each with half of every batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import rekindle
from rekindle.lab.data.store import VARIABLE
from rekindle.lab.runs import shared_prefix
from rekindle.lab.runs.execute import TRAIN_RUN
from rekindle.lab.runs.processes import execute_together, joined
from rekindle.lab.runs.store import Store
from tests.lab.runs.test_training_run import untimed
from tests.lab.texts import text_run, write_texts


@pytest.fixture(autouse=True)
def texts(tmp_path, monkeypatch):
    write_texts(tmp_path / "texts", monkeypatch)


def start(run, folder, out, processes=2, **more):
    spec = folder / "spec.yaml"
    spec.write_text(yaml.safe_dump(run.to_dict()))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    source = str(Path(rekindle.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source, VARIABLE: os.environ[VARIABLE], **more}
    return subprocess.run(
        [*command, "-m", "rekindle", "run", str(spec), "--out", str(out)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )


def test_alone_a_run_is_executed_as_always(tmp_path):
    store, run = Store(tmp_path / "runs"), text_run()
    with joined("cpu"):
        assert execute_together(store, run, TRAIN_RUN).kind == "finished"
    assert len(store.rows(run.key)) == 6


def test_two_processes_train_as_one(tmp_path):
    run = text_run(methods="fire+l2:strength=1e-3", accumulate=2, optimizer="adamw:lr=1e-3,decay=matrices")
    told = start(run, tmp_path, tmp_path / "two")
    assert told.returncode == 0, told.stderr[-3000:]
    assert told.stdout.count("6 rows") == 1  # one of them tells
    store, alone = Store(tmp_path / "two"), Store(tmp_path / "one")
    execute_together(alone, run, TRAIN_RUN)
    for mine, other in zip(store.rows(run.key), alone.rows(run.key), strict=True):
        assert mine["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert mine["event"] == "boundary" or mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
    again = start(run, tmp_path, tmp_path / "two")
    assert again.returncode == 0 and "6 rows" in again.stdout  # finished before: nobody waits for anybody


def test_two_processes_are_one_in_two_parts_bit_for_bit(tmp_path):
    """The same sums in the same order; against one part the order differs, which AdamW makes 3e-3 of."""
    shared, parts = text_run(methods="fire"), text_run(methods="fire", accumulate=2)
    told = start(shared, tmp_path, tmp_path / "two")
    assert told.returncode == 0, told.stderr[-3000:]
    alone = Store(tmp_path / "one")
    execute_together(alone, parts, TRAIN_RUN)
    two, one = Store(tmp_path / "two").rows(shared.key), alone.rows(parts.key)
    assert [row["loss"] for row in two] == [row["loss"] for row in one]


def test_a_run_that_fails_in_all_processes_ends(tmp_path):
    run = text_run(batch_size=9)
    told = start(run, tmp_path, tmp_path / "two")
    assert told.returncode != 0
    assert "2 processes can share evenly" in told.stdout + told.stderr


def trained(run, out, every=0.0, world=2, end="", at=0, rank=0):
    """Train a run by processes of which one, or all, end after a number of steps: by SIGKILL or an error."""
    code = f"""
import os, signal, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
from rekindle.lab.runs.execute import TRAIN_RUN
from rekindle.lab.runs.processes import execute_together, joined
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
steps = []
def count(*_):
    steps.append(0)
    if len(steps) == {at} and {rank} in (-1, int(os.environ["RANK"])):
        if {end!r} == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("an error of this process alone")
register_optimizer_step_post_hook(count)
with joined("cpu"):
    event = execute_together(Store({str(out)!r}), Run.from_dict({run.to_dict()!r}), TRAIN_RUN, every={every})
sys.exit(event.kind == "failed")
"""
    out.mkdir(exist_ok=True)
    (out / "train.py").write_text(code)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(rekindle.__file__).parents[1])}
    return subprocess.run(
        [*command, str(out / "train.py")], capture_output=True, text=True, env=environment, timeout=100
    )


def test_killed_and_started_again_the_rows_are_those_of_a_run_that_was_not(tmp_path):
    run = text_run(methods="fire", model="gpt:dim=16,depth=1,heads=2,dropout=0.1", start="best", accumulate=2)
    assert trained(run, tmp_path / "whole").returncode == 0
    for rank, at in ((-1, 5), (1, 34)):  # in the middle of an epoch, of either stage
        assert trained(run, tmp_path / "killed", end="kill", at=at, rank=rank).returncode != 0
        assert Store(tmp_path / "killed").state(run.key) == "open"  # no failure of the run
    assert trained(run, tmp_path / "killed").returncode == 0
    assert untimed(Store(tmp_path / "killed").rows(run.key)) == untimed(Store(tmp_path / "whole").rows(run.key))


def test_a_failure_of_the_first_process_alone_ends_the_others(tmp_path):
    run = text_run()
    told = trained(run, tmp_path / "runs", end="error", at=5, rank=0)  # a full disk, for example: it alone writes
    assert told.returncode != 0
    assert "an error of this process alone" in Store(tmp_path / "runs").failure(run.key)


def test_a_failure_of_another_process_is_not_told_as_one_of_the_run(tmp_path):
    run = text_run()
    told = trained(run, tmp_path / "runs", end="error", at=5, rank=1)
    assert told.returncode != 0 and "an error of this process alone" in told.stderr
    assert Store(tmp_path / "runs").state(run.key) == "open"


def test_all_processes_go_on_from_a_prefix_that_a_sweep_left(tmp_path):
    store, run = Store(tmp_path / "runs"), text_run(methods="fire")
    shared_prefix.prepare(store, [run, text_run(methods="none")])
    execute_together(store, text_run(methods="none"), TRAIN_RUN)
    assert trained(run, tmp_path / "runs").returncode == 0
    assert store.rows(run.key)[:3] == [
        {**row, "key": run.key, "methods": "fire"} for row in store.rows(text_run(methods="none").key)[:3]
    ]
