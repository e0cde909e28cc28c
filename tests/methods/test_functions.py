"""The public function of a method is made from its settings, and reads well."""

import dataclasses
import inspect

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import SettingsError
from rekindle.methods.functions import CONTEXT, function_of
from rekindle.methods.registry import keys_of


@pytest.mark.parametrize("key", [*keys_of("one-shot"), *keys_of("optimizer")])
def test_every_setting_and_all_context_is_there_with_a_word(key):
    function = function_of(key)
    cls = type(rk.method(key))
    names = list(inspect.signature(function).parameters)
    assert {field.name for field in dataclasses.fields(cls)} <= set(names)
    if cls.kind == "one-shot":
        assert names[:2] == ["model", "optimizer"] and set(CONTEXT) <= set(names)
    words = inspect.getdoc(function)
    missing = [name for name in names if f"\n    {name}: " not in words]
    assert not missing and cls.card.summary in words and f"rekindle list {key}" in words


def test_it_treats():
    model, example = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 4)
    record = rk.fire_(model, example=example, solver="exact", seed=3)
    assert record.method == rk.Fire(solver="exact")
    assert isinstance(rk.muon(model, example, lr=0.1), torch.optim.Optimizer)


def test_a_setting_that_does_not_exist_is_told():
    with pytest.raises(SettingsError, match="settings of Fire: solver"):
        rk.fire_(nn.Linear(2, 2), solvers="exact")


def test_public_names_are_classes_functions_and_nothing_else():
    assert rk.Redo(period=5).period == 5 and rk.errors.PlanError
    assert {"fire_", "Fire", "Redo", "muon", "Muon", "errors"} <= set(dir(rk))
    for name in ("redo_", "fire", "muon_", "nonsense", "Nonsense"):
        with pytest.raises(AttributeError, match=name):
            getattr(rk, name)
