"""Errors say three things, and survive a trip between processes."""

import pickle

import pytest

from rekindle import errors
from rekindle.errors import RekindleError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RekindleError)]


@pytest.mark.parametrize("kind", KINDS)
def test_three_parts_and_the_same_after_pickling(kind):
    error = kind(expected="a", got="b", fix="c")
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert type(each) is kind and isinstance(each, ValueError)
        assert str(each) == "expected: a\ngot: b\nwhat to do: c"
        assert (each.expected, each.got, each.fix) == ("a", "b", "c")


def test_no_part_can_be_left_out():
    for missing in ("expected", "got", "fix"):
        parts = {name: "x" for name in ("expected", "got", "fix") if name != missing}
        with pytest.raises(TypeError, match=missing):
            RekindleError(**parts)


def test_a_plan_without_effect_is_a_warning_and_no_error():
    assert issubclass(errors.NoEffectWarning, UserWarning) and not issubclass(errors.NoEffectWarning, RekindleError)
