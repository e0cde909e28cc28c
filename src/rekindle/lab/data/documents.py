"""Documents as they are read: bytes in chunks, and text in pieces that can be tokenized one by one."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from rekindle.errors import RekindleError

PIECE = 1 << 16  # characters after which a piece ends at the next place where it may
LONGEST = 1 << 24  # characters without such a place: a piece is held in memory
# No token of GPT-2's reaches from something else into whitespace: each is an optional space and what is none, or
# whitespace only. So text can be cut before a space or a line break that follows something else; both sides are then
# tokenized as if they stood together.
CUT = re.compile(r"(?<=\S)[ \n]")


@dataclass(frozen=True, eq=False)
class Document:
    """A text that ends with an end-of-text token, where the tokenizer has one.

    Args:
        name: Told in errors.
        chunks: Its bytes, cut anywhere.
        start: Place of the first byte in what the name stands for.
    """

    name: str
    chunks: Iterable[bytes]
    start: int = 0


class Corpus(Protocol):
    """Documents to learn from and to be tested on. Each call reads them again from the beginning."""

    def train(self) -> Iterator[Document]:
        """Yield what is learned from."""

    def val(self) -> Iterator[Document]:
        """Yield what is tested on."""

    def sources(self) -> list[dict[str, Any]]:
        """Return what was read, with sizes and hashes; after both parts have been read to their end."""


class Fingerprint:
    """SHA-256 of bytes that may be read several times: each place counts once, in order.

    Example:
        >>> seen = Fingerprint()
        >>> for place, chunk in ((0, b"ab"), (0, b"ab"), (2, b"c")): seen.add(place, chunk)
        >>> seen.place, seen.sha256 == hashlib.sha256(b"abc").hexdigest()
        (3, True)
    """

    def __init__(self) -> None:
        self.place, self._hash = 0, hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The hash of all that was added."""
        return self._hash.hexdigest()

    def add(self, place: int, chunk: bytes) -> None:
        """Add the bytes at a place, unless they are known already."""
        if place == self.place:
            self._hash.update(chunk)
            self.place += len(chunk)


def check_part(validation: float) -> None:
    """Raise unless something is left to learn from and something to be tested on."""
    if not 0 < validation < 1:
        raise RekindleError(
            expected="a part for validation above 0 and below 1", got=str(validation), fix="take 0.1 for a tenth"
        )


def pieces(document: Document) -> Iterator[tuple[str, bool]]:
    r"""Yield the text of a document in pieces, and whether it ends with this one.

    Tokens of the pieces, one after the other, are those of the whole text: see `CUT`.

    Raises:
        RekindleError: It is not UTF-8, or there is no place to cut it for too long.

    Example:
        >>> list(pieces(Document("a", [b"one \xc3", b"\xa4"])))
        [('one ä', True)]
    """
    rest = ""
    for text in _decoded(document):
        rest += text
        start = 0
        while found := CUT.search(rest, start + PIECE):
            yield rest[start : found.start()], False
            start = found.start()
        rest = rest[start:]
        if len(rest) > LONGEST:
            raise RekindleError(
                expected=f"a space or a line break at least every {LONGEST:,} characters",
                got=f"a longer run without one in {document.name}",
                fix="take --tokenizer bytes, or break the text into lines",
            )
    yield rest, True


def _decoded(document: Document) -> Iterator[str]:
    decoder, done = codecs.getincrementaldecoder("utf-8")(), document.start
    try:
        for chunk in document.chunks:
            waiting = len(decoder.getstate()[0])  # bytes of a character whose end is still to come
            text = decoder.decode(chunk)
            done += len(chunk)
            yield text
        waiting = len(decoder.getstate()[0])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise RekindleError(
            expected=f"text as UTF-8 in {document.name}",
            got=f"{error.reason} at byte {done - waiting + error.start:,}: {error.object[error.start : error.end]!r}",
            fix="write it as UTF-8 (iconv -f latin1 -t utf-8), or take --tokenizer bytes, which reads any file",
        ) from None
