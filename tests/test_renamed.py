"""Old names say what they are called now."""

import importlib

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle._renamed import MODULES, NAMES


@pytest.mark.parametrize("name", NAMES)
def test_old_names_of_the_package(name):
    with pytest.raises(AttributeError, match=f"rk.{name} is now {NAMES[name]}"):
        getattr(rk, name)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("below", ["", ".anything"])
def test_old_modules(name, below):
    with pytest.raises(ModuleNotFoundError, match=f"rekindle.{name} is now rekindle"):
        importlib.import_module(f"rekindle.{name}{below}")


def test_other_modules_that_are_not_there_are_none_of_our_business():
    with pytest.raises(ModuleNotFoundError, match="^No module named 'rekindle.nothing'$"):
        importlib.import_module("rekindle.nothing")


def test_old_attributes():
    model = nn.Linear(3, 2)
    keeper = rk.Keeper(model, methods="l2")
    with pytest.raises(AttributeError, match="Keeper.left_alone is now Keeper.skipped"):
        assert keeper.left_alone
    with pytest.raises(AttributeError, match="Keeper.running is now Keeper.state"):
        keeper.running("l2")
    with pytest.raises(AttributeError, match="ChangeRecord.grafts is now ChangeRecord.surgery"):
        assert rk.full_reset_(model).grafts
    with pytest.raises(AttributeError, match="Plan.grafts is now Plan.surgery"):
        assert rk.plan("full_reset", model).grafts
    data = (torch.randn(8, 3), torch.randint(2, (8,)))
    found = rk.compare(model, data, data, ["l2"], budget=1, seeds=2)
    with pytest.raises(AttributeError, match="Comparison.runs is now Comparison.trials"):
        assert found.runs
    with pytest.raises(AttributeError, match="Comparison.save is now rekindle.lab.runs.save_comparison"):
        found.save("folder")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        assert keeper.nonsense
