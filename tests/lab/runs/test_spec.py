import dataclasses
import subprocess
import sys

import pytest

from rekindle.errors import RekindleError
from rekindle.lab.runs.spec import Run


def test_round_trip_and_key():
    run = Run.from_dict({"methods": "fire", "metrics": ["dfi"], "seed": 4, "epochs": 3})
    again = Run.from_dict(run.to_dict())
    assert again == run and again.key == run.key and run.metrics == ("dfi",)


def test_every_field_is_in_the_key():
    other = {"protocol": "rounds", "data": "mnist1d", "model": "cnn", "methods": "fire", "optimizer": "sgd"}
    other |= {"schedule": "decay", "precision": "bfloat16", "augment": "flip", "metrics": ["dfi"], "device": "cuda"}
    other |= {"metrics_each": "epoch", "clip": 1.0, "epochs": 1, "patience": 1, "compile": True}
    keys = {Run().key}
    for field in dataclasses.fields(Run):
        value = other.get(field.name)
        if value is None:
            value = 0.5 if isinstance(field.default, float) else 7
        keys.add(Run(**{field.name: value}).key)
    assert len(keys) == len(dataclasses.fields(Run)) + 1


def test_the_key_is_the_same_in_another_process():
    code = "from rekindle.lab.runs.spec import Run; print(Run(seed=3).key)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == Run(seed=3).key


def test_text_of_numbers_is_read():
    assert Run.from_dict({"clip": "1e-1"}).clip == 0.1  # YAML reads 1e-1 as text


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"protocoll": "warm_start"}, "protocoll"),
        ({"protocol": "warmstart"}, "class_incremental"),
        ({"protocol": "warm_start:fraction=2"}, "fraction"),
        ({"data": "../secret"}, "plain name"),
        ({"model": "resnet17"}, "resnet18"),
        ({"methods": "fire+water"}, "water"),
        ({"methods": "muon"}, "optimizer of the run"),
        ({"optimizer": "adamm"}, "adam, adamw"),
        ({"optimizer": "adam:rate=1"}, "lr"),
        ({"optimizer": "muon:rate=1"}, "rate"),
        ({"schedule": "cosine"}, "plateau"),
        ({"augment": "flop"}, "flip"),
        ({"metrics": ["beauty"]}, "beauty"),
        ({"batch_size": 0}, "batch_size"),
        ({"precision": "float16"}, "bfloat16"),
        ({"seed": -1}, "seed"),
        ({"device": "moon"}, "cuda"),
        ({"patience": 3}, "validation=0.1"),
        ({"schedule": "plateau"}, "validation=0.1"),
        ([1], "mapping"),
    ],
)
def test_everything_is_checked_at_the_door(wrong, part):
    with pytest.raises(RekindleError) as told:
        Run.from_dict(wrong)
    assert part in str(told.value)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({}, "d37478a7fdf026c3"),
        ({"methods": "layerwise:normalize=false,reinitialize=true+fire"}, "46b59bd395d00858"),
        ({"augment": "flip+color:contrast=0.2"}, "76ba382b26574208"),
        ({"protocol": "task_change:augment=color,second_augment=flip+color:hue=0.1"}, "cf14ae32c48b7574"),
        ({"methods": "fire:skip=normalize.*", "data": "color"}, "3499e09490a078b5"),
    ],
)
def test_keys_are_those_of_rows_that_were_stored_before_names_changed(fields, key):
    assert Run(**fields).key == key
