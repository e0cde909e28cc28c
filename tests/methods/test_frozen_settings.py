"""Settings are values, and mistakes are told in three parts."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Annotated

import pytest
from pydantic import Field

import rekindle as rk
from rekindle.errors import SettingsError
from rekindle.methods.frozen_settings import settings, type_of
from rekindle.methods.one_shot.fire import Fire


@settings
class Example:
    size: Annotated[int, Field(ge=1)] = 3
    rate: float = 0.5
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.size > 10 and self.rate > 1:
            raise SettingsError(expected="a small size or a small rate", got="both large", fix="lower one")


def test_settings_are_frozen_and_checked_in_python_too():
    with pytest.raises(SettingsError):
        Fire(blend=2.0)
    with pytest.raises(Exception, match="cannot assign"):
        Fire().blend = 0.5  # type: ignore[misc]


def test_equal_settings_are_equal_hash_alike_and_print_as_they_are_made():
    assert Example() == Example(size=3) != Example(size=4) and hash(Example()) == hash(Example(rate=0.5))
    assert repr(Example(names=("a",))) == "Example(size=3, rate=0.5, names=('a',))"
    assert pickle.loads(pickle.dumps(Fire(blend=0.5))) == Fire(blend=0.5) == rk.method("fire:blend=0.5")
    assert dataclasses.replace(Example(), size=7).size == 7


@pytest.mark.parametrize(
    ("given", "expected", "got", "fix"),
    [
        ({"size": 0}, "Example.size: int (ge=1) (Input should be greater", "size=0", "the default 3"),
        ({"size": "many"}, "Example.size: int", "size='many'", "the default 3"),
        ({"rate": float("nan")}, "Example.rate: float", "rate=nan", "the default 0.5"),
        ({"rate": float("inf")}, "Example.rate: float", "rate=inf", "the default 0.5"),
        ({"speed": 1}, "settings of Example: size, rate, names", "speed=1", "see above"),
        ({"size": 11, "rate": 2.0}, "a small size or a small rate", "both large", "lower one"),
    ],
)
def test_three_parts(given, expected, got, fix):
    with pytest.raises(SettingsError) as caught:
        Example(**given)
    assert caught.value.expected.startswith(expected) and caught.value.got == got and fix in caught.value.fix


def test_positions_are_not_for_settings():
    with pytest.raises(TypeError):
        Example(3)


def test_types_as_a_person_would_write_them():
    types = {field.name: type_of(field) for field in dataclasses.fields(Fire)}
    assert types["blend"] == "float (ge=0, le=1)" and types["skip"] == "tuple[str, ...]"
