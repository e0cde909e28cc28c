"""Cards: the same headings for all, and nothing left empty."""

from __future__ import annotations

import dataclasses

import pytest

import rekindle as rk
from rekindle.methods.card import Card, settings_table
from rekindle.methods.one_shot.fire import Fire
from rekindle.methods.registry import settings_class


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
    empty = Card("", "", "", "", "", (), "")
    assert empty.missing() == ["title", "source", "what", "when", "cost", "deviations", "example"]


@pytest.mark.parametrize("card", rk.list_methods(), ids=lambda card: card.key)
def test_every_card_is_complete_and_explains_every_setting(card):
    assert card.missing() == []
    cls = settings_class(card.key)
    lines = settings_table(cls).splitlines()[2:]
    fields = [field.name for field in dataclasses.fields(cls)]
    assert [line.split("`")[1] for line in lines] == fields
    assert all(line.rstrip("| ").rpartition("| ")[2] for line in lines)
    unexplained = [line for line in lines if line.endswith("|  |")]
    assert not unexplained, unexplained


def test_the_summary_is_the_first_sentence():
    card = Card("X", "a paper", "It halves. w <- w/2.", "now", "none", ("None.",), ">>> 1\n1")
    assert card.summary == "It halves." and dataclasses.replace(card, what="It halves").summary == "It halves."
    assert "## Needs\n\nnothing but the model" in card.to_markdown()
    assert "1. None." in card.to_markdown() and card.missing() == []


def test_meanings_go_over_several_lines():
    @dataclasses.dataclass
    class Example:
        """Settings of an example.

        Args:
            size: How large,
                and how small.
            name: Its name.
        """

        size: int = 3
        name: str = "a"

    lines = settings_table(Example).splitlines()
    assert lines[2] == "| `size` | `int` | `3` | How large, and how small. |"
    assert lines[3] == "| `name` | `str` | `'a'` | Its name. |"
