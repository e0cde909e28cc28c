"""Continued pretraining: what is trained on what, from which weights, and that it goes on bit-equal."""

import json
import shutil

import pytest
import torch

from rekindle.errors import RekindleError, SettingsError
from rekindle.lab.data import load
from rekindle.lab.protocols.catalog import protocol
from rekindle.lab.runs import checkpoint
from rekindle.lab.runs.training_run import learner_of, stages_of, train_run
from rekindle.training.schedules import Linear
from tests.lab.runs.test_training_run import same, untimed, weights
from tests.lab.texts import PROTOCOL, text_run, write_texts


@pytest.fixture(autouse=True)
def texts(tmp_path, monkeypatch):
    write_texts(tmp_path / "texts", monkeypatch)


def stages(extra=""):
    return list(protocol(PROTOCOL + extra).stages(load("first:context=8"), seed=0))


def test_the_first_text_alone_then_a_mixture():
    first, second = stages()
    assert (first.steps, second.steps, first.warmup, second.warmup) == (30, 20, 4, 2)
    assert (first.boundary, second.boundary, second.start_from) == (False, True, None)
    assert first.schedule == second.schedule == Linear(to=0.1)
    assert first.train.shares == first.test.shares == (1.0, 0.0)
    assert second.train.shares == second.test.shares == (0.25, 0.75)
    assert first.keep == {"best": None, "early": 20}
    assert stages(",start=best,second_evaluate=5")[1].start_from == "best"
    assert stages(",second_evaluate=5")[1].epoch_steps == 5


def test_without_a_share_both_are_one_text():
    spec = PROTOCOL.replace("share=0.25,", "") + ",to_tokens=108"
    second = list(protocol(spec).stages(load("first:context=8"), seed=0))[1]
    assert second.train.shares == pytest.approx((392 / 492, 100 / 492))


def test_settings_that_make_no_sense(tmp_path):
    for extra, words in (
        (",early=40", "at most steps=30"),
        (",early=15", "multiple of evaluate=10"),
        (",early=5,evaluate=100", "take early=30"),
        (",warmup=40", "warmup: at most steps=30"),
        (",to_tokens=401", "at most the 400 tokens to learn from in 'other'"),
    ):
        with pytest.raises(SettingsError, match=words):
            stages(extra)
    for name in ("key", "after_boundary"):  # of the class, and no settings
        with pytest.raises(SettingsError, match="settings of lm_continual: to, "):
            protocol(f"lm_continual:{name}=x")
    with pytest.raises(SettingsError, match="at most steps=30"):
        text_run(early=40)  # at the door, not when it is trained
    with pytest.raises(SettingsError, match="which has no tokens"):
        list(protocol("lm_continual").stages(load("digits"), seed=0))
    with pytest.raises(RekindleError, match="tokens"):
        train_run(text_run(protocol="warm_start"), None)
    meta = tmp_path / "texts" / "other" / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "vocabulary": 40}))
    with pytest.raises(RekindleError, match="a vocabulary of 40 in 'other', and of 16 in 'first'"):
        stages()


def test_fields_about_images_are_refused_on_text():
    with pytest.raises(SettingsError, match="without warmup, label_noise"):
        train_run(text_run(warmup=0.5, label_noise=0.1), None)
    with pytest.raises(SettingsError, match="without evaluate_each"):
        train_run(text_run(evaluate_each=2, start="early"), None)


def test_a_method_that_changes_nothing_is_told_with_the_reason():
    rows = train_run(text_run(methods="head_reset"), None)
    assert "tied" in rows[3]["no_effect"]  # the head is the embedding
    assert all("no_effect" not in row for row in train_run(text_run(methods="fire"), None))


def test_rows_tell_the_loss_on_both_texts():
    rows = train_run(text_run(methods="fire"), None)
    assert [(row["stage"], row["event"], row["step"]) for row in rows] == [
        (0, "epoch", 10),
        (0, "epoch", 20),
        (0, "end", 30),
        (1, "boundary", 0),
        (1, "epoch", 10),
        (1, "end", 20),
    ]
    for row in rows:
        share = 1.0 if row["stage"] == 0 else 0.25
        assert row["loss"] == pytest.approx(share * row["loss_first"] + (1 - share) * row["loss_second"])
        assert "accuracy" not in row
    assert rows[2]["loss_first"] < 2.5 < rows[2]["loss_second"]  # ln 16 = 2.77: it knows the first text only
    assert rows[-1]["loss_second"] < rows[3]["loss_second"]
    assert rows[3]["loss_before"] == pytest.approx(0.25 * rows[2]["loss_first"] + 0.75 * rows[2]["loss_second"])


def at(run, moment):
    """Return the weights of a run after so many steps of its first stage; slow and obvious."""
    learner, found = learner_of(run, *stages_of(run)), {}

    def save(must):
        stage, progress = learner.where[0], learner.progress
        if (stage, progress.epoch * 10 + progress.step) == (0, moment):
            found.update({name: value.clone() for name, value in learner.model.state_dict().items()})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.run(save=save)
    return found


@pytest.mark.parametrize("start", ["best", "early", "late", "initial"])
def test_the_second_stage_begins_with_the_weights_that_it_names(start, monkeypatch):
    run = text_run(start=start, methods="none")
    seen = []
    from rekindle.lab.runs import learner as module

    def train(model, optimizer, stage, *args, **kwargs):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        seen.append((state, len(optimizer.state)))
        return real(model, optimizer, stage, *args, **kwargs)

    real = module.train
    monkeypatch.setattr(module, "train", train)
    rows = train_run(run, None)
    first, second = seen
    assert second[1] == 0  # the optimizer begins anew
    monkeypatch.setattr(module, "train", real)
    best = min(rows[:3], key=lambda row: row["loss"])["step"]
    moments = {"best": best, "early": 20, "initial": 0}
    if start == "initial":
        assert same(second[0], first[0])
    elif start == "late" or moments[start] == 30:
        assert not same(second[0], at(run, 20))
    else:
        assert same(second[0], at(run, moments[start]))


@pytest.mark.parametrize("start", ["best", "initial", "late"])
@pytest.mark.parametrize("methods", ["fire", "l2_init:strength=1e-2", "cbp:rate=0.05,maturity=2"])
def test_goes_on_bit_equal_from_every_place(start, methods, tmp_path, monkeypatch):
    run = text_run(start=start, methods=methods, model="gpt:dim=16,depth=1,heads=2,dropout=0.1")
    whole = train_run(run, tmp_path / "whole", every=0)
    copies = tmp_path / "copies"
    copies.mkdir()
    real, count = checkpoint.write, [0]

    def write(folder, content):
        real(folder, content)
        count[0] += 1
        shutil.copy(folder / checkpoint.NAME, copies / str(count[0]))

    monkeypatch.setattr(checkpoint, "write", write)
    train_run(run, tmp_path / "again", every=0)
    monkeypatch.setattr(checkpoint, "write", real)
    for place in sorted(copies.iterdir(), key=lambda path: int(path.name))[::9]:
        folder = tmp_path / f"from_{place.name}"
        folder.mkdir()
        shutil.copy(place, folder / checkpoint.NAME)
        assert untimed(train_run(run, folder)) == untimed(whole)
        assert same(weights(folder), weights(tmp_path / "whole"))


def test_all_starts_share_what_is_trained_before_them(tmp_path, monkeypatch):
    runs = [
        text_run(start=start, methods=methods) for start in ("best", "early", "late") for methods in ("none", "fire")
    ]
    alone = [train_run(run, tmp_path / run.key) for run in runs]
    trained = []
    from rekindle.lab.runs import learner as module

    real = module.train
    monkeypatch.setattr(module, "train", lambda *a, **k: (trained.append(a[2].name), real(*a, **k))[1])
    for run, rows in zip(runs, alone, strict=True):
        shared = train_run(run, tmp_path / f"{run.key}-shared", shared_prefix=tmp_path / "prefix")
        assert untimed(shared) == untimed(rows)
    assert trained.count("pretraining") == 1 and trained.count("continued pretraining") == 6


def test_batches_in_parts_and_half_precision_train_alike():
    whole, parts, half = (
        train_run(text_run(**given), None)[-1]["loss"] for given in ({}, {"accumulate": 4}, {"precision": "bfloat16"})
    )
    assert parts == pytest.approx(whole, rel=1e-3) and parts != whole
    assert half == pytest.approx(whole, rel=0.05) and half != whole


def test_matrices_alone_decay():
    run = text_run()
    learner = learner_of(run, *stages_of(run))
    groups = learner._optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert all(p.ndim > 1 for p in groups[0]["params"]) and all(p.ndim == 1 for p in groups[1]["params"])
    assert sum(len(group["params"]) for group in groups) == len(list(learner.model.parameters()))


@pytest.mark.slow
def test_a_compiled_network_trains_alike(tmp_path):
    plain, compiled = (train_run(text_run(methods="fire", compile=how), None) for how in (False, True))
    assert torch.tensor([r["loss"] for r in compiled]).allclose(torch.tensor([r["loss"] for r in plain]), rtol=1e-3)
