"""What was done, as numbers and in a line."""

import torch
from torch import nn

import rekindle as rk
from rekindle.integrations.readings import Readings, in_a_line, key_of, of_treatment
from rekindle.keeper.events import RecyclingRecord


def treated():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    net[2].requires_grad_(False)
    return rk.shrink_perturb_(net, example=torch.zeros(1, 4))


def test_a_treatment_in_numbers():
    record = treated()
    found = of_treatment(record)
    assert found == {
        "rekindle/shrink_perturb/sfe": record.sfe,
        "rekindle/shrink_perturb/edited": 2.0,
        "rekindle/shrink_perturb/skipped": 2.0,
    }


def test_units_add_up_until_they_are_taken():
    readings = Readings()
    for step, units in ((2, (1, 2)), (4, (0,))):
        readings.add(RecyclingRecord(step, "Redo(threshold=0.1)", {"fc": units}))
    readings.add(RecyclingRecord(5, "SelectiveReinit()", {}, tensors=("a", "b")))
    assert readings.take() == {"rekindle/redo/recycled": 3.0, "rekindle/selective_reinit/tensors": 2.0}
    assert readings.take() == {}


def test_in_a_line():
    assert in_a_line(treated(), 7).startswith("step 7: shrink_perturb changed 2 tensors (0.weight, 0.bias), SFE ")
    assert in_a_line(RecyclingRecord(2, "Redo()", {"fc": (1,)}), 9) == "step 2: Redo() recycled fc 1"
    assert in_a_line(rk.ChangeRecord(rk.Fire(), ()), 3) == "step 3: fire changed nothing"


def test_what_is_no_method_has_its_first_word():
    assert key_of("recalibrate_ over 3 batches") == "recalibrate" and key_of(rk.Fire()) == "fire"
