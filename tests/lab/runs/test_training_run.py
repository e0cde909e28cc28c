"""One run: what its rows tell, and that it goes on bit-equal after being killed at any moment."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import rekindle
from rekindle.errors import RekindleError
from rekindle.lab.data.store import VARIABLE, write_stored
from rekindle.lab.runs import checkpoint
from rekindle.lab.runs.checkpoint import CheckpointError
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.training_run import learner_of, stages_of, train_run
from rekindle.seeds import seed_of

SHORT = {"protocol": "warm_start:fraction=0.2,before=3,after=2", "model": "mlp:hidden=16|16", "batch_size": 64}
TIMES = {"seconds", "boundary_seconds"}


def run_of(**given):
    return Run.from_dict({**SHORT, **given})


def untimed(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def weights(folder):
    return checkpoint.read(folder)["learner"]["model"]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_rows(tmp_path):
    rows = train_run(run_of(methods="fire", seed=2), tmp_path)
    assert [(row["stage"], row["event"], row["epoch"]) for row in rows] == [
        (0, "epoch", 1),
        (0, "epoch", 2),
        (0, "end", 3),
        (1, "boundary", 0),
        (1, "epoch", 1),
        (1, "end", 2),
    ]
    for row in rows:
        assert (row["protocol"], row["data"], row["methods"], row["seed"]) == (SHORT["protocol"], "digits", "fire", 2)
        assert row["key"] == run_of(methods="fire", seed=2).key
        assert 0 <= row["accuracy"] <= 1 and row["loss"] > 0 and row["seconds"] >= 0
    boundary = rows[3]
    assert boundary["accuracy_before"] == rows[2]["accuracy"] != boundary["accuracy"]
    assert boundary["dfi_after"] < boundary["dfi_before"] and boundary["sfe"] > 0
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)


def test_nothing_happens_at_a_boundary_without_methods():
    boundary = train_run(run_of(), None)[3]
    assert boundary["accuracy"] == boundary["accuracy_before"] and "sfe" not in boundary


def test_seeds_pair_until_the_boundary_and_methods_differ_after_it():
    plain, treated, other = (
        train_run(run_of(methods=m, seed=s), None) for m, s in (("none", 0), ("fire", 0), ("none", 1))
    )
    assert [r["loss"] for r in plain[:3]] == [r["loss"] for r in treated[:3]] != [r["loss"] for r in other[:3]]
    assert plain[-1]["loss"] != treated[-1]["loss"]


def test_fresh_is_a_network_that_saw_nothing():
    run = run_of(methods="fresh", seed=1, optimizer="adam:lr=0.02", epochs=10)
    rows = train_run(run, None)
    assert rows[10]["accuracy"] < 0.35 < 0.6 < rows[10]["accuracy_before"]
    assert untimed(rows) == untimed(train_run(run, None))


def test_a_finished_run_is_not_trained_again(tmp_path, monkeypatch):
    rows = train_run(run_of(), tmp_path)
    monkeypatch.setattr("rekindle.lab.runs.training_run.stages_of", lambda run: pytest.fail("trained again"))
    assert train_run(run_of(), tmp_path) == rows


def test_progress_hears_every_row_once():
    heard = []
    assert train_run(run_of(), None, progress=heard.append) == heard


def test_epochs_for_all_stages():
    rows = train_run(run_of(epochs=1, protocol="continual:chunks=3"), None)
    assert [row["event"] for row in rows] == ["end", "boundary", "end", "boundary", "end"]


def test_less_and_noisier_data():
    (whole, _), (part, _) = stages_of(run_of()), stages_of(run_of(sample_fraction=0.5, label_noise=1.0))
    assert len(part[1].train) == round(len(whole[1].train) / 2)
    clean = {tuple(x.flatten().tolist()): y for x, y in zip(whole[1].train.inputs, whole[1].train.labels, strict=True)}
    kept = [
        clean[tuple(x.flatten().tolist())] == y for x, y in zip(part[1].train.inputs, part[1].train.labels, strict=True)
    ]
    assert sum(kept) < 0.2 * len(kept)


def test_validation_and_patience_reach_every_stage():
    stages, _ = stages_of(run_of(validation=0.1, patience=4))
    assert [stage.patience for stage in stages] == [4, 4]
    assert [len(stage.validation) for stage in stages] == [24, 120]


def test_a_second_data_set_with_more_classes(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        write_stored(tmp_path / "more", part, rng.integers(0, 256, (40, 6, 6, 3)), np.arange(40) % 20)
    rows = train_run(run_of(protocol="task_change:to=more", epochs=1), None)
    assert "accuracy_first" in rows[-1] and rows[-1]["stage_name"] == "task B"
    stages, classes = stages_of(run_of(protocol="task_change:to=more"))
    assert classes == 20 and learner_of(run_of(), stages, classes).model(torch.zeros(1, 64)).shape == (1, 20)


def test_rounds_tell_methods_which_round_it_is():
    run = run_of(
        protocol="rounds:blocks=2,repeats=2,steps=3", data="synthetic:test=64", model="mlp", methods="layerwise"
    )
    rows = train_run(run, None)
    assert [row["event"] for row in rows] == ["end", *["boundary", "end"] * 3]
    sizes = [row["sfe"] for row in rows if row["event"] == "boundary"]
    assert sizes[2] < sizes[0] and sizes[2] < sizes[1]  # one layer less is drawn afresh


# --- going on ---


class Killed(BaseException):
    pass


def kill_after(monkeypatch, count):
    """Die after a number of checkpoints."""
    write, left = checkpoint.write, [count]

    def counting(folder, content):
        write(folder, content)
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    monkeypatch.setattr(checkpoint, "write", counting)


RESUMED = {
    "plain": {},
    "one-shot": {"methods": "shrink_perturb:shrink=0.5+fire"},
    "recycler": {"methods": "redo:period=3,threshold=0.3"},
    "fresh": {"methods": "fresh"},
    "structure": {"methods": "plasticity_injection"},
    "data": {"methods": "dash"},
    "schedule": {"schedule": "decay:by=0.8", "warmup": 0.3, "optimizer": "sgd:lr=0.1,momentum=0.9", "clip": 0.5},
    "stopping": {"validation": 0.2, "patience": 1, "schedule": "plateau:patience=1", "optimizer": "adam:lr=0.05"},
    "muon": {"optimizer": "muon"},
    "augmented": {"augment": "flip+crop:padding=1"},
    "norms": {"model": "resnet18:width=2", "batch_size": 120, "protocol": "warm_start:fraction=0.2,before=1,after=1"},
    "dropout": {"model": "scnn:channels=2|2,hidden=8,dropout=0.5"},
    "bfloat16": {"model": "scnn:channels=2|2,hidden=8", "precision": "bfloat16"},
}


@pytest.mark.parametrize("kind", RESUMED)
def test_goes_on_bit_equal(kind, tmp_path, monkeypatch):
    run = run_of(**RESUMED[kind])
    rows = train_run(run, tmp_path / "whole")
    folder = tmp_path / "killed"
    kills = random.Random(kind)
    for _ in range(3):  # die three times, each after one to nine checkpoints
        with monkeypatch.context() as patched, pytest.raises(Killed):
            kill_after(patched, kills.randint(1, 9) if kind != "norms" else 1)
            train_run(run, folder, every=0)
    assert untimed(train_run(run, folder, every=0)) == untimed(rows)
    assert same(weights(folder), weights(tmp_path / "whole"))


CHILD = """
import sys
from pathlib import Path
from rekindle.lab.runs.training_run import train_run
from rekindle.lab.runs.spec import Run
train_run(Run.from_dict(eval(sys.argv[1])), Path(sys.argv[2]), every=0)
"""


def start(given, folder):
    source = str(Path(rekindle.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", CHILD, repr(given), str(folder)], env=environment)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_real_kill_in_the_middle_loses_nothing(tmp_path):
    given = {**SHORT, "methods": "redo:period=3+fire", "protocol": "warm_start:fraction=0.2,before=10,after=12"}
    folder = tmp_path / "killed"
    for wanted in (4, 13):  # kill once in the first stage, once in the second
        process = start(given, folder)
        while process.poll() is None and epochs_done(folder) < wanted:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
        assert checkpoint.read(folder)["finished"] is False
    rows = train_run(Run.from_dict(given), folder, every=0)
    whole = train_run(Run.from_dict(given), tmp_path / "whole")
    assert untimed(rows) == untimed(whole)
    assert same(weights(folder), weights(tmp_path / "whole"))
    assert sorted(path.name for path in folder.iterdir()) == [checkpoint.NAME]


def epochs_done(folder):
    """Rows in the checkpoint, which is whole at any moment."""
    saved = checkpoint.read(folder) if folder.exists() else None
    return 0 if saved is None else len(saved["learner"]["rows"])


def test_a_full_disk_is_told_and_loses_nothing(tmp_path, monkeypatch):
    rows = train_run(run_of(), tmp_path / "whole")
    folder = tmp_path / "full"
    left = [4]

    def fsync(handle, real=os.fsync):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(CheckpointError) as told:
            train_run(run_of(), folder, every=0)
    assert "No space left" in told.value.got and "goes on" in told.value.fix
    assert [path.name for path in folder.iterdir()] == [checkpoint.NAME]  # the last one, whole, and no half one
    assert checkpoint.read(folder)["finished"] is False
    assert untimed(train_run(run_of(), folder)) == untimed(rows)


def test_a_damaged_checkpoint_is_told(tmp_path):
    (tmp_path / checkpoint.NAME).write_bytes(b"PK half of a file")
    with pytest.raises(CheckpointError, match="delete it"):
        train_run(run_of(), tmp_path)


def test_the_folder_of_another_run_is_refused(tmp_path):
    train_run(run_of(), tmp_path)
    with pytest.raises(CheckpointError, match="differs in methods, seed"):
        train_run(run_of(seed=3, methods="fire"), tmp_path)


def test_threads_and_the_global_generator_are_put_back():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    train_run(run_of(threads=2, epochs=1), None)
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)


def test_missing_data_are_told(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(RekindleError, match="no such file"):
        train_run(run_of(data="cifar10"), None)


def test_seeds_of_stages_differ():
    assert seed_of(0, "stage 0", "training") != seed_of(0, "stage 1", "training")
