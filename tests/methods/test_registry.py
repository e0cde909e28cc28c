"""Specs, settings and their mistakes."""

import pickle

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import NoEffectWarning, PlanError, SettingsError
from rekindle.methods.card import Card
from rekindle.methods.one_shot.fire import Fire
from rekindle.methods.registry import methods


def test_spec_strings():
    assert rk.method("fire") == Fire()
    assert rk.method("fire: iterations=5, solver=quintic ,skip=head.*|stem.*") == Fire(
        iterations=5, solver="quintic", skip=("head.*", "stem.*")
    )
    assert rk.method("shrink_perturb:perturb=none").perturb is None
    assert [type(m).__name__ for m in methods("fire+shrink_perturb:shrink=0.1")] == ["Fire", "ShrinkPerturb"]
    assert methods([Fire(), "full_reset"])[1] == rk.method("full_reset")


@pytest.mark.parametrize(
    ("spec", "expected", "got"),
    [
        ("fyre", "dash, dirac_reset, ", "'fyre'"),
        ("fire:iterations", "key=value", "'iterations'"),
        ("fire:iteration=5", "settings of Fire: solver", "iteration='5'"),
        ("fire:iterations=many", "Fire.iterations: int", "'many'"),
        ("fire:iterations=0", "greater than or equal to 1", "'0'"),
        ("fire:blend=nan", "Fire.blend", "nan"),
        ("fire:solver=magic", "Fire.solver", "'magic'"),
        ("fire+fire", "the spec of one method", "names 2"),
    ],
)
def test_nonsense_is_told_in_three_parts(spec, expected, got):
    with pytest.raises(SettingsError) as caught:
        rk.method(spec)
    assert expected in caught.value.expected and got in caught.value.got and caught.value.fix


def test_settings_are_frozen_and_checked_in_python_too():
    with pytest.raises(SettingsError):
        Fire(blend=2.0)
    with pytest.raises(Exception, match="cannot assign"):
        Fire().blend = 0.5  # type: ignore[misc]


def test_errors_travel_between_processes():
    error = SettingsError(expected="a", got="b", fix="c")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is SettingsError and str(again) == str(error) and again.fix == "c"


def test_several_methods_are_one_transaction():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    before = {n: t.clone() for n, t in model.state_dict().items()}
    record = rk.apply_("fire+shrink_perturb:shrink=1,skip=*.weight", model, example=torch.ones(1, 4))
    assert {row.reason for row in record.rows} == {"fire", "shrink_perturb"}
    record.undo()
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def test_an_empty_plan_warns_with_the_reason():
    with pytest.warns(NoEffectWarning, match="changes nothing: named in skip"):
        rk.plan("fire:skip=*", nn.Linear(2, 2), example=torch.ones(1, 2))
    with pytest.warns(NoEffectWarning, match="nothing that it applies to"):
        rk.plan("fire", nn.ReLU(), example=torch.ones(1, 2))


def test_what_is_no_method_is_refused():
    with pytest.raises(PlanError, match="one-shot method"):
        rk.plan(object(), nn.Linear(2, 2))
    with pytest.raises(PlanError, match="graph= beside a state dict"):
        rk.plan("full_reset", {"weight": torch.ones(2)})


def test_card():
    card = next(card for card in rk.list_methods() if card.key == "fire")
    text = card.to_markdown(Fire)
    for heading in (
        "What it does",
        "When to use it",
        "Settings",
        "Cost",
        "What we do differently",
        "Example",
        "Source",
    ):
        assert f"## {heading}" in text
    assert "| `blend` | `float (ge=0, le=1)` | `1.0` | 0 keeps the old weights" in text
    assert card.to_markdown().count("##") == text.count("##") - 1
    empty = Card("x", "one-shot", "", "", "", "", "", (), "")
    assert empty.missing() == ["title", "source", "what", "when", "cost", "deviations", "example"]


def test_public_names():
    assert "fire_" in dir(rk) and "trace" in dir(rk)
    assert rk.lab.models.MLP is not None
    with pytest.raises(AttributeError, match="no attribute 'fyre_'"):
        rk.fyre_  # noqa: B018
