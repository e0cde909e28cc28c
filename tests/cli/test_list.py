import pytest

import rekindle as rk
from rekindle.cli import main

KEYS = [card.key for card in rk.list_methods()]


def test_all_methods_are_in_the_table(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert {"fire", "shrink_perturb", "full_reset"} <= set(KEYS)
    assert all(key in said for key in KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_shows_the_whole_card(key, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert main(["list", key]) == 0
    card = next(card for card in rk.list_methods() if card.key == key)
    said = capsys.readouterr().out
    assert card.title in said and "## What we do differently" in said and "## Settings" in said
