"""`torchrun -m rekindle run`: two processes that train one run, each with half of every batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import rekindle
from rekindle.lab.data.store import VARIABLE
from rekindle.lab.runs.execute import TRAIN_RUN
from rekindle.lab.runs.processes import execute_together, joined
from rekindle.lab.runs.store import Store
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


def test_a_run_that_fails_in_all_processes_ends(tmp_path):
    run = text_run(batch_size=9)
    told = start(run, tmp_path, tmp_path / "two")
    assert told.returncode != 0
    assert "2 processes can share evenly" in told.stdout + told.stderr
