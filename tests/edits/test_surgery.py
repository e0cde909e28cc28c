"""Surgery as values: printed in words, and as plain data."""

import json

from rekindle.edits.surgery import Standardize, Surgery, Twins


def test_what_is_put_where_in_words():
    assert str(Surgery("1", Standardize(0.5, 2.0), ("0.weight",), "layerwise")) == (
        "1: (x - 0.5) / 2 after it, 1 parameters frozen (layerwise)"
    )
    assert str(Surgery("2", Twins("2"), (), "injection")) == (
        "2: a new trainable copy minus its frozen twin (injection)"
    )
    assert str(Surgery("0", None, ("0.weight", "0.bias"), "alone")) == "0: 2 parameters frozen (alone)"


def test_plain_data():
    data = Surgery("1", Standardize(0.0, 1.0), ("a", "b"), "why").to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["module"] == "1" and data["freezes"] == ["a", "b"] and data["reason"] == "why"
    assert data["put"] == str(Standardize(0.0, 1.0))


def test_equal_numbers_are_equal_normalizations():
    assert Standardize(1.0, 2.0) == Standardize(1.0, 2.0) != Standardize(1.0, 3.0)
    assert Standardize(1.0, 2.0) == Standardize(1.0, 2.0, "after") != Standardize(1.0, 2.0, "before")
    assert str(Standardize(1.0, 2.0, "before")) == "(x - 1) / 2 before it"
