"""What a Keeper tells of one event, in a line and as plain data."""

import json

from rekindle.keeper.events import RecyclingRecord


def test_in_a_line():
    record = RecyclingRecord(7, "redo", {"fc": (1, 4), "out": (0,)}, held_back={"out": (2, 3)})
    assert str(record) == "step 7: redo recycled fc 2, out 1; 2 units held back"
    drawn = RecyclingRecord(7, "selective_reinit", {}, tensors=("a.weight", "b.weight"))
    assert str(drawn) == "step 7: selective_reinit drew weights of 2 tensors (a.weight, b.weight) afresh"


def test_as_plain_data():
    record = RecyclingRecord(7, "redo", {"fc": (1,)}, notices=("moments",), skipped={"head": "the model's output"})
    assert json.loads(json.dumps(record.to_dict()))["units"] == {"fc": [1]}
