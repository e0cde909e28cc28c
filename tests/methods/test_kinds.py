"""The four kinds: a decorator makes a class a method, once and with one key."""

import dataclasses

import pytest

import rekindle as rk
from rekindle.errors import SettingsError
from rekindle.methods import Card, kind_of, one_shot_method, optimizer_method, per_step_method, recycler_method
from rekindle.methods.kinds import NEEDS, PROTOCOLS, function_name, key_of
from rekindle.methods.registry import FOLDERS, camel, places, settings_class

CARD = Card("T", "s", "What.", "when", "cost", ("none",), ">>> 1\n1")
OWN = [key for key, place in places().items() if place.package == "rekindle"]


@pytest.mark.parametrize("key", OWN)
def test_file_name_class_and_key_agree(key):
    cls, place = settings_class(key), places()[key]
    folder, file = place.module.split(".")[-2:]
    assert cls.key == key == file == cls.card.key and cls.__name__ == camel(key)
    assert cls.kind == FOLDERS[folder] == cls.card.kind
    assert key_of(camel(key)) == key


@pytest.mark.parametrize("key", OWN)
def test_every_method_has_what_its_kind_needs(key):
    one = rk.method(key)
    assert isinstance(one, PROTOCOLS[kind_of(one)])
    assert callable(getattr(one, NEEDS[one.kind]))
    assert set(one.identity) <= {field.name for field in dataclasses.fields(one)}


@pytest.mark.parametrize("make", [one_shot_method, per_step_method, recycler_method, optimizer_method])
def test_a_class_without_what_its_kind_needs_is_refused(make):
    with pytest.raises(SettingsError, match="Empty without it"):
        make(CARD, identity={})(type("Empty", (), {}))


def test_the_card_gets_key_and_kind():
    @recycler_method(CARD, identity={}, observes=("fired",))
    class TwoWords:
        rate: float = 0.5

        def init(self, context):
            return None

    assert (TwoWords.key, TwoWords.kind, TwoWords.observes) == ("two_words", "recycler", ("fired",))
    assert TwoWords.card.key == "two_words" and CARD.key == ""
    assert TwoWords(rate=0.25) == TwoWords(rate=0.25) and function_name(TwoWords) == ""
    with pytest.raises(SettingsError, match="rate"):
        TwoWords(rate="much")


@pytest.mark.parametrize("strange", [None, 3, object(), rk.Fire, len])
def test_what_is_no_method_is_told(strange):
    with pytest.raises(SettingsError, match="rekindle list"):
        kind_of(strange)


def test_functions_have_the_method_s_name():
    assert function_name(rk.Fire) == "fire_" and function_name(rk.Muon) == "muon" and function_name(rk.Redo) == ""
