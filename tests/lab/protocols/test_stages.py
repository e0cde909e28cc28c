"""What each protocol trains on what."""

import numpy as np
import pytest
import torch

from rekindle.errors import RekindleError, SettingsError
from rekindle.lab.data import Dataset, Examples, load
from rekindle.lab.data.store import VARIABLE, write_stored
from rekindle.lab.protocols.catalog import PROTOCOLS, protocol
from rekindle.training.schedules import Decay, Plateau, Steps
from rekindle.training.stage import Stage


def numbered(count=100, classes=10):
    train = Examples(torch.arange(count).float()[:, None], torch.arange(count) % classes)
    return Dataset("numbers", train, train.take(slice(50)), classes)


def stages(spec, data=None, seed=0):
    return list(protocol(spec).stages(data or numbered(), seed))


def seen(stage):
    return set(stage.train.inputs.flatten().tolist())


def test_warm_start_is_a_part_and_then_all():
    part, everything = stages("warm_start:fraction=0.1")
    assert len(seen(part)) == 10 and len(seen(everything)) == 100
    assert (part.epochs, everything.epochs) == (1000, 100)
    assert (part.boundary, everything.boundary) == (False, True)
    assert seen(part) != seen(stages("warm_start:fraction=0.1", seed=1)[0])


def test_warm_start_by_images_steps_and_random_labels():
    part, everything = stages("warm_start:images=40,random_labels=1,before_steps=7,after_steps=3")
    own = part.train.inputs.flatten().long() % 10
    assert len(part.train) == 40 and (part.steps, everything.steps) == (7, 3)
    assert (part.train.labels != own).sum() > 20
    assert torch.equal(everything.train.labels, everything.train.inputs.flatten().long() % 10)


@pytest.mark.parametrize("access", ["full", "limited"])
def test_continual_chunks(access):
    chunks = stages(f"continual:chunks=4,access={access}")
    assert [stage.boundary for stage in chunks] == [False, True, True, True]
    assert set.union(*map(seen, chunks)) == seen(stages("generalization")[0])
    if access == "full":
        assert [len(seen(stage)) for stage in chunks] == [25, 50, 75, 100]
        assert all(seen(a) < seen(b) for a, b in zip(chunks, chunks[1:], strict=False))
    else:
        assert [len(seen(stage)) for stage in chunks] == [25] * 4


def test_class_incremental_accumulates_classes():
    phases = stages("class_incremental:phases=5")
    assert [len(stage.train.labels.unique()) for stage in phases] == [2, 4, 6, 8, 10]
    assert [len(stage.test.labels.unique()) for stage in phases] == [2, 4, 6, 8, 10]
    assert all(len(stage.also["all"]) == 50 for stage in phases)
    limited = stages("class_incremental:phases=5,access=limited")
    assert [len(stage.train.labels.unique()) for stage in limited] == [2] * 5
    assert set(limited[0].train.labels.tolist()).isdisjoint(limited[1].train.labels.tolist())


def test_classes_must_divide():
    with pytest.raises(SettingsError, match="1, 2, 5, 10"):
        stages("class_incremental:phases=3")


def test_generalization_decays_at_half_and_three_quarters():
    (stage,) = stages("generalization:decay=true,rebase=true")
    assert stage.schedule == Steps(at=(100, 150), by=0.1) and stage.rebase and not stage.boundary
    assert stages("generalization")[0].schedule is None


def test_rounds_as_the_text_tells_and_as_the_algorithm():
    told = stages("rounds:blocks=2,repeats=2,steps=5")
    assert [dict(stage.rounds) for stage in told] == [
        {},
        {"block": 1, "repeat": 1},
        {"block": 1, "repeat": 2},
        {"block": 2, "repeat": 1},
    ]
    assert [stage.boundary for stage in told] == [False, True, True, True]
    algorithm = stages("rounds:blocks=2,repeats=2,steps=5,begin=boundary")
    assert [stage.rounds["block"] for stage in algorithm] == [1, 1, 2, 2] and algorithm[0].boundary
    assert {stage.steps for stage in told} == {5}


def test_rounds_with_validation_halve_on_a_plateau():
    stage = stages("rounds:blocks=1,repeats=2,epochs=9,validation=0.1,patience=30")[1]
    assert stage.schedule == Plateau(patience=20, by=0.5) and len(stage.validation) == 10 and stage.patience == 30
    assert stage.epochs == 9 and stage.steps is None


def test_task_change_has_settings_for_each_task():
    first, second = stages(
        "task_change:learning_rate=0.05,decay=0.95,second_learning_rate=0.01,weight_decay=0.001,patience=20,"
        "second_patience=40,epochs=100,second_epochs=200,sample=0.1"
    )
    assert (first.learning_rate, second.learning_rate) == (0.05, 0.01)
    assert (first.schedule, second.schedule) == (Decay(by=0.95), Decay(by=0.95))
    assert (first.weight_decay, second.weight_decay) == (0.001, 0.001)
    assert (first.patience, second.patience, first.epochs, second.epochs) == (20, 40, 100, 200)
    assert (len(first.train), len(first.validation), len(second.train), len(second.validation)) == (9, 1, 90, 10)
    assert (first.boundary, second.boundary) == (False, True)
    assert seen(second).isdisjoint(second.validation.inputs.flatten().tolist())


def test_task_change_from_blurred_to_sharp():
    data = load("digits")
    first, second = stages("task_change:change=blur", data)
    sharp, blurred = second.test.batch(slice(9)), first.test.batch(slice(9))
    assert (blurred.diff(dim=-1).abs().mean()) < 0.5 * sharp.diff(dim=-1).abs().mean()
    assert torch.equal(second.also["first"].batch(slice(9)), blurred)
    assert first.augment is None and second.augment is None


def test_task_change_to_shifted_images():
    first, second = stages("task_change:second_augment=shift:size=1", load("digits"))
    assert first.augment is None and second.augment is not None


def test_task_change_to_another_data_set(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        write_stored(tmp_path / "color", part, rng.integers(0, 256, (20, 6, 6, 3)), np.arange(20) % 12)
    first, second = stages("task_change:to=color", load("digits"))
    assert first.train.shape == second.train.shape == (1, 8, 8)
    assert (len(second.train), len(second.validation)) == (18, 2)
    assert second.train.batch(slice(None)).mean().abs() < 0.2  # normalized in its own way
    third, fourth = stages("task_change:to=digits", load("color"))
    assert fourth.train.shape == (3, 6, 6)


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "lm_continual"])  # draws nothing
def test_every_protocol_is_repeatable(name):
    spec = "class_incremental:phases=5" if name == "class_incremental" else name
    one, same = stages(spec, load("digits"), 4), stages(spec, load("digits"), 4)
    assert all(torch.equal(a.train.inputs, b.train.inputs) for a, b in zip(one, same, strict=True))


@pytest.mark.parametrize("wrong", ["warmstart", "warm_start:fraction=0", "continual:access=none", "rounds:blocks=0"])
def test_mistakes(wrong):
    with pytest.raises(SettingsError):
        protocol(wrong)


@pytest.mark.parametrize("given", [{}, {"epochs": 1, "steps": 1}, {"epochs": 0}])
def test_a_stage_has_one_length(given):
    with pytest.raises(RekindleError, match="either epochs or steps"):
        Stage("x", numbered().train, numbered().test, **given)


def test_an_empty_stage_is_told():
    with pytest.raises(RekindleError, match="training examples"):
        stages("continual:chunks=60", numbered(50))
