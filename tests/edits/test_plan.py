"""A plan shows what would happen, in full, and writes nothing."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.edits.plan import Plan, PlannedLink
from rekindle.edits.surgery import Standardize, Surgery


def net():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def test_it_shows_the_numbers_of_the_record_and_writes_nothing():
    model = net()
    before = {n: t.clone() for n, t in model.state_dict().items()}
    planned = rk.plan("fire", model, example=torch.ones(1, 6))
    assert "nothing written" in str(planned)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert planned.rows == rk.apply_("fire", model, example=torch.ones(1, 6)).rows
    assert planned.notices == ()


def test_everything_of_its_content_is_printed():
    content = Edits(
        (Edit("w", lambda old: 3 * old, "because"),),
        (Skip("b", "no matrix"),),
        ("mind the gap",),
        (Surgery("0", Standardize(0.0, 1.0), (), "test"),),
    )
    plan = Plan("a method", (PlannedLink(content, {"w": torch.ones(2, 2)}),))
    assert (plan.edits, plan.skips) == (content.edits, content.skips)
    assert (plan.notices, plan.surgery) == (content.notices, content.surgery)
    (row,) = plan.rows
    assert (row.tensor, row.reason, row.count, row.changed) == ("w", "because", 4, 4)
    assert (row.norm_before, row.norm_after, row.sfe) == (2.0, 6.0, 16.0)
    text = str(plan)
    for part in ("plan, nothing written: a method", "because", "2 -> 6", "skipped: b: no matrix", "note: mind the gap"):
        assert part in text
    assert "structure: 0: " in text


def test_the_numbers_are_computed_once_when_they_are_first_asked_for():
    asked = []

    def op(old):
        asked.append(1)
        return old

    plan = Plan("a method", (PlannedLink(Edits((Edit("w", op, "test"),)), {"w": torch.ones(2)}),))
    assert not asked
    assert plan.rows is plan.rows and str(plan) and len(asked) == 1


def test_attributes_that_are_not_there():
    plan = Plan("a method", ())
    with pytest.raises(AttributeError, match="Plan.grafts is now Plan.surgery"):
        assert plan.grafts
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assert plan.nothing


def test_without_values_it_shows_what_would_be_edited():
    planned = str(rk.plan("fire", net().to("meta"), example=torch.ones(1, 6)))
    assert "edit: 0.weight (fire)" in planned and "nothing can be carried out" in planned
