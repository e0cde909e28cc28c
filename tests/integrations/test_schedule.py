"""When one-shot methods act."""

import numpy as np
import pytest

import rekindle as rk
from rekindle.errors import KeeperError
from rekindle.integrations.schedule import Schedule, schedule_of

FIRE = (rk.Fire(),)


@pytest.mark.parametrize(
    ("at", "every", "steps"),
    [
        (None, None, []),
        (3, None, [3]),
        ([2, 4], None, [2, 4]),
        ("start", None, [0]),
        (["start", 5], None, [0, 5]),
        (range(1, 3), None, [1, 2]),
        (None, 2, [2, 4]),
        ([0], 4, [0, 4]),
        (np.array([1, 3]), np.int64(4), [1, 3, 4]),
    ],
)
def test_the_steps_that_were_asked_for(at, every, steps):
    found = schedule_of(at, every, FIRE)
    assert [step for step in range(6) if found.due(step)] == steps
    assert found.on_new_data is (at is None and every is None)


@pytest.mark.parametrize("at", [-1, 1.0, True, "later", [], [2, None], {"a": 1}])
def test_what_is_no_step_is_refused(at):
    with pytest.raises(KeeperError, match=r"at=\[1000, 5000\]"):
        schedule_of(at, None, FIRE)


@pytest.mark.parametrize("every", [0, -2, 1.5, "2", True])
def test_what_is_no_number_of_steps_is_refused(every):
    with pytest.raises(KeeperError, match="every=1000"):
        schedule_of(None, every, FIRE)


def test_steps_need_a_method_that_acts_then():
    assert schedule_of(None, None, ()) == Schedule()
    with pytest.raises(KeeperError, match="one-shot"):
        schedule_of([1], None, ())


@pytest.mark.parametrize(
    ("at", "every", "first", "last", "reached"),
    [
        ([5], None, 0, 4, False),
        ([5], None, 0, 5, True),
        ([2], None, 3, 9, False),
        ("start", None, 0, 4, True),
        (None, 3, 0, 2, False),
        (None, 3, 0, 3, True),
        (None, 3, 3, 5, False),
        (None, None, 0, 9, False),
    ],
)
def test_whether_a_training_reaches_what_was_asked_for(at, every, first, last, reached):
    assert schedule_of(at, every, FIRE).reached(first, last) is reached


def test_a_schedule_says_what_was_asked_for():
    assert str(Schedule(frozenset({5, 2}), 3)) == "at=[2, 5], every=3" and not str(Schedule())
