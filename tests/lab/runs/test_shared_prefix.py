"""What runs have in common is trained once, and changes nothing in their rows."""

import pytest

from rekindle.lab.runs import checkpoint, execute, shared_prefix
from rekindle.lab.runs.checkpoint import CheckpointError
from rekindle.lab.runs.engines.local import LocalEngine
from rekindle.lab.runs.store import Store
from rekindle.lab.runs.training_run import train_run
from rekindle.training import loop
from tests.lab.runs.test_training_run import run_of, same, untimed, weights

KINDS = {
    "one-shot": {"methods": "shrink_perturb:shrink=0.5+fire"},
    "fresh": {"methods": "fresh"},
    "structure": {"methods": "plasticity_injection"},
    "data": {"methods": "dash"},
    "stopping": {"methods": "fire", "validation": 0.2, "patience": 1, "schedule": "plateau:patience=1"},
    "muon": {"methods": "fire", "optimizer": "muon"},
    "augmented": {"methods": "fire", "augment": "flip+crop:padding=1"},
    "norms": {"methods": "fire", "model": "resnet18:width=2", "batch_size": 120, "metrics": ("weight_norm",)},
    "dropout": {"methods": "fire", "model": "scnn:channels=2|2,hidden=8,dropout=0.5"},
    "chunks": {"methods": "fire", "protocol": "continual:chunks=3,epochs=2"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_going_on_from_a_shared_prefix_is_bit_equal(kind, tmp_path, monkeypatch):
    run, other = run_of(**KINDS[kind]), run_of(**{**KINDS[kind], "methods": "none"})
    whole = train_run(run, tmp_path / "whole")
    common = next(number for number, row in enumerate(whole) if row["event"] == "boundary")
    prefix = tmp_path / "prefix"
    train_run(other, tmp_path / "other", shared_prefix=prefix)
    assert [path.name for path in prefix.iterdir()] == [checkpoint.NAME]
    trained, heard = [], []
    monkeypatch.setattr(
        "rekindle.lab.runs.learner.train",
        lambda *args, **kwargs: (trained.append(args[2].name), loop.train(*args, **kwargs)),
    )
    rows = train_run(run, tmp_path / "shared", shared_prefix=prefix, progress=heard.append)
    assert untimed(rows) == untimed(whole) == untimed(heard)
    assert len(trained) == max(row["stage"] for row in whole)  # not the first stage
    assert [row["seconds"] for row in rows[:common]] != [row["seconds"] for row in whole[:common]]  # the other's
    assert same(weights(tmp_path / "shared"), weights(tmp_path / "whole"))


def test_the_first_to_come_leaves_it(tmp_path):
    train_run(run_of(methods="fire"), None, shared_prefix=tmp_path)
    saved = checkpoint.read(tmp_path)
    assert saved["key"] == run_of().key and saved["learner"]["stage"] == 1


@pytest.mark.parametrize("protocol", ["generalization:epochs=1", "rounds:steps=3,blocks=1,repeats=2,begin=boundary"])
def test_without_a_stage_before_a_boundary_nothing_is_shared(protocol, tmp_path):
    train_run(run_of(protocol=protocol), None, shared_prefix=tmp_path / "prefix")
    assert not (tmp_path / "prefix").exists()


def test_methods_that_act_in_steps_share_nothing():
    for spec in ("l2:strength=1e-4", "redo", "fire+soft_rescale"):
        assert shared_prefix.plain(run_of(methods=spec)) is None
    assert shared_prefix.plain(run_of(methods="fresh", seed=3)) == run_of(seed=3)


def test_such_a_run_leaves_no_beginning_and_takes_none(tmp_path):
    run, prefix = run_of(methods="l2:strength=1e-2+fire"), tmp_path / "prefix"
    whole = train_run(run, None, shared_prefix=prefix)
    assert not prefix.exists()
    train_run(run_of(), None, shared_prefix=prefix)
    assert untimed(train_run(run, None, shared_prefix=prefix)) == untimed(whole)


def test_another_run_is_refused(tmp_path):
    train_run(run_of(), None, shared_prefix=tmp_path)
    with pytest.raises(CheckpointError, match="differs in seed"):
        train_run(run_of(seed=3, methods="fire"), None, shared_prefix=tmp_path)


def test_what_is_prepared(tmp_path):
    store = Store(tmp_path)
    runs = [run_of(methods=m, seed=s) for s in (0, 1) for m in ("none", "l2", "fire", "fresh")] + [run_of(seed=2)]
    prepared = shared_prefix.prepare(store, runs)
    assert prepared[:2] == [runs[0], runs[4]] and prepared[2:] == [runs[n] for n in (1, 2, 3, 5, 6, 7, 8)]
    shared = {run.key for run in runs if shared_prefix.folder_of(store, run) is not None}
    assert shared == {runs[n].key for n in (0, 2, 3, 4, 6, 7)}
    shared_prefix.forget(store)
    assert shared_prefix.folder_of(store, runs[0]) is None and store.keys() == []


def test_a_sweep_trains_it_once_and_leaves_no_folder(tmp_path):
    runs = [run_of(methods=m, seed=s) for s in (0, 1) for m in ("none", "fire", "shrink_perturb", "l2")]
    store, alone = Store(tmp_path / "store"), {run.key: train_run(run, None) for run in runs}
    summary = execute.run_sweep(store, runs, LocalEngine(workers=1, free_memory=0))
    assert sorted(summary.finished) == sorted(run.key for run in runs)
    times = {}
    for run in runs:
        rows = store.rows(run.key)
        names = alone[run.key][0].keys()
        assert untimed([{n: row[n] for n in names if n in row} for row in rows]) == untimed(
            [{n: row[n] for n in names if n in row} for row in alone[run.key]]
        )
        times.setdefault((run.seed, run.methods == "l2"), set()).add(rows[0]["seconds"])
    assert [len(found) for found in times.values()] == [1] * 4  # the common rows are the same, times too
    assert sorted(path.name for path in store.folder.iterdir()) == sorted(run.key for run in runs)


def test_a_sweep_that_is_stopped_keeps_them(tmp_path):
    class Stopped:
        def run_all(self, store, runs, *, function, listen):
            return False

    store, runs = Store(tmp_path), [run_of(), run_of(methods="fire")]
    assert execute.run_sweep(store, runs, Stopped()).interrupted
    assert shared_prefix.folder_of(store, runs[1]) is not None


@pytest.mark.parametrize(("name", "told"), [("with_prefix", True), ("without_prefix", False)])
def test_a_function_of_ones_own_is_told_if_it_asks(name, told, tmp_path):
    runs = [run_of(methods=spec) for spec in ("none", "fire")]
    engine = LocalEngine(workers=1, free_memory=0)
    summary = execute.run_sweep(Store(tmp_path), runs, engine, function=f"tests.lab.runs.test_shared_prefix:{name}")
    assert len(summary.finished) == 2
    assert [row["told"] for row in Store(tmp_path).rows()] == [told, told]


def with_prefix(run, folder, *, progress=None, shared_prefix=None):
    return [{"told": shared_prefix is not None and shared_prefix.name == run_of().key}]


def without_prefix(run, folder, *, progress=None):
    return [{"told": False}]
