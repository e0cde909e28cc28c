"""A trial's key is of its content, all of it."""

import dataclasses

from rekindle.comparison.trial import Trial

TRIAL = Trial("fire", seed=3, steps=7, data="own:1234", model="Net:abcd", optimizer="adam", batch_size=8)


def test_every_field_counts():
    others = {
        name: dataclasses.replace(TRIAL, **{name: value})
        for name, value in {
            "methods": "redo",
            "seed": 4,
            "steps": 8,
            "data": "own:4321",
            "model": "Net:dcba",
            "optimizer": "sgd",
            "batch_size": 9,
        }.items()
    }
    assert set(others) == {field.name for field in dataclasses.fields(Trial)}
    keys = {TRIAL.key, *(other.key for other in others.values())}
    assert len(keys) == 8 and all(len(key) == 16 and int(key, 16) >= 0 for key in keys)
    assert dataclasses.replace(TRIAL).key == TRIAL.key


def test_columns_of_its_rows():
    assert TRIAL.columns() == {
        "key": TRIAL.key,
        "protocol": "compare:steps=7",
        "data": "own:1234",
        "model": "Net:abcd",
        "methods": "fire",
        "seed": 3,
    }
