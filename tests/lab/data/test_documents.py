"""Pieces of text that are tokenized one by one, and what is told of bytes that are no text."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rekindle.errors import RekindleError
from rekindle.lab.data import documents
from rekindle.lab.data.documents import Document, Fingerprint, check_part, pieces


def chunked(data, size):
    return [data[k : k + size] for k in range(0, len(data), size)]


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=200), size=st.integers(1, 9))
def test_pieces_are_the_text_and_end_once(text, size):
    data = text.encode("utf-8")
    found = list(pieces(Document("a", chunked(data, size))))
    assert "".join(piece for piece, _ in found) == text
    assert [ends for _, ends in found] == [False] * (len(found) - 1) + [True]


def test_pieces_begin_before_whitespace_that_follows_something_else(monkeypatch):
    monkeypatch.setattr(documents, "PIECE", 3)
    found = [piece for piece, _ in pieces(Document("a", [b"one two  \n\n three\tfour \xe3\x80\x80 five"]))]
    assert found == ["one", " two", "  \n\n three\tfour", " \u3000 five"]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_the_place_of_what_is_no_text_is_told_however_it_is_cut(size):
    data = "äöü and ".encode() + b"\xe9t\xe9"
    with pytest.raises(RekindleError, match="at byte 111: .*xe9") as told:
        list(pieces(Document("french.txt", chunked(data, size), start=100)))
    assert "french.txt" in told.value.expected and "iconv" in told.value.fix


def test_a_character_that_is_cut_off_at_the_end_is_told():
    with pytest.raises(RekindleError, match="at byte 2"):
        list(pieces(Document("a", [b"ab\xe2", b"\x82"])))


def test_text_without_any_whitespace_is_not_gathered_for_ever(monkeypatch):
    monkeypatch.setattr(documents, "LONGEST", 50)
    assert list(pieces(Document("a", [b"x" * 10] * 5))) == [("x" * 50, True)]
    with pytest.raises(RekindleError, match="without one in a"):
        list(pieces(Document("a", [b"x" * 10] * 6)))


def test_bytes_that_are_read_again_count_once():
    seen = Fingerprint()
    for place, chunk in ((0, b"abc"), (0, b"abc"), (3, b"de"), (3, b"de"), (0, b"abc")):
        seen.add(place, chunk)
    assert (seen.place, seen.sha256) == (5, hashlib.sha256(b"abcde").hexdigest())


@pytest.mark.parametrize("part", [-0.1, 0, 1, 1.5, float("nan")])
def test_parts_that_make_no_sense(part):
    with pytest.raises(RekindleError, match="above 0 and below 1"):
        check_part(part)
