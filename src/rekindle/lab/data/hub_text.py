"""Text from the Hugging Face hub as documents: WikiText-103, and OpenWebText as nanoGPT takes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rekindle.errors import RekindleError
from rekindle.lab.data.documents import Document, Fingerprint, check_part
from rekindle.lab.data.hub import open_split

ROWS = 1000  # read at once


@dataclass(frozen=True)
class TextSource:
    """Where a text is on the hub.

    Args:
        path: Its repository, or a local folder in the same format.
        config: Its configuration, if it has several.
        column: Of the text.
        train: Split to learn from.
        validation: Split for validation; None if that is a part of the other.
        fraction: Part of the rows, from the end, for validation where there is no split for it.
        lines: Whether a row is a line of one long text, and not a document of its own.
    """

    path: str
    config: str | None = None
    column: str = "text"
    train: str = "train"
    validation: str | None = None
    fraction: float = 0.1
    lines: bool = False


TEXTS = {
    "wikitext103": TextSource("Salesforce/wikitext", "wikitext-103-raw-v1", validation="validation", lines=True),
    "openwebtext": TextSource("Skylion007/openwebtext", fraction=0.0005),  # about 4,000 documents, as many as nanoGPT's
}


@dataclass
class _Part:
    """Some rows of a split, and what was read of them."""

    rows: Any
    source: TextSource
    split: str
    seen: Fingerprint = field(default_factory=Fingerprint)

    def documents(self) -> Iterator[Document]:
        name = f"{self.split} of {self.source.path}"
        if self.source.lines:
            yield Document(name, self._texts())
            return
        for number, text in enumerate(self._texts()):
            yield Document(f"row {number} in {name}", [text])

    def _texts(self) -> Iterator[bytes]:
        place = 0
        for value in self._values():
            text = (_line(value) if self.source.lines else value).encode()
            self.seen.add(place, text)
            place += len(text)
            yield text

    def _values(self) -> Iterator[str]:
        try:
            for some in self.rows.iter(batch_size=ROWS):
                yield from (value or "" for value in some[self.source.column])
        except OSError as error:  # of its files, and not of those that are written meanwhile
            raise RekindleError(
                expected=f"rows of {self.source.path} that can be read", got=str(error), fix="fetch it again"
            ) from error

    def told(self) -> dict[str, Any]:
        where = {"source": self.source.path, "config": self.source.config, "split": self.split}
        return {**where, "rows": len(self.rows), "bytes": self.seen.place, "sha256": self.seen.sha256}


def _line(value: str) -> str:
    """Return a row of WikiText as the line of the published file: blank lines have a space there and nothing here."""
    line = value or " "
    return line if line.endswith("\n") else f"{line}\n"


class HubCorpus:
    """Two parts of a data set of texts, fetched by the package `datasets` and read from its cache row by row.

    Args:
        source: Where it is.
        validation: Part of the rows for validation, instead of the source's.
        rows: Only the first so many rows of the split to learn from.

    Raises:
        RekindleError: It cannot be fetched, or is not as expected.
    """

    def __init__(self, source: TextSource, validation: float | None = None, rows: int | None = None) -> None:
        check_part(source.fraction if validation is None else validation)
        if source.validation is not None and validation is not None:
            raise RekindleError(
                expected=f"no part for validation: {source.path} has a split {source.validation!r} for that",
                got=str(validation),
                fix="leave it out",
            )
        found = _rows(source, source.train)
        found = found if rows is None else found.select(range(min(rows, len(found))))
        if source.validation is not None:
            self._train = _Part(found, source, source.train)
            self._val = _Part(_rows(source, source.validation), source, source.validation)
            return
        held = max(1, round((source.fraction if validation is None else validation) * len(found)))
        cut = len(found) - held
        if cut < 1:
            raise RekindleError(
                expected=f"rows to learn from and rows for validation in {source.path}",
                got=f"{len(found)} rows, {held} of them for validation",
                fix="take more rows, or a smaller part for validation",
            )
        self._train = _Part(found.select(range(cut)), source, f"{source.train}[:{cut}]")
        self._val = _Part(found.select(range(cut, len(found))), source, f"{source.train}[{cut}:{len(found)}]")

    def train(self) -> Iterator[Document]:
        """Yield what is learned from."""
        return self._train.documents()

    def val(self) -> Iterator[Document]:
        """Yield what is tested on."""
        return self._val.documents()

    def sources(self) -> list[dict[str, Any]]:
        """Return both parts with their sizes and hashes."""
        return [self._train.told(), self._val.told()]


def _rows(source: TextSource, split: str) -> Any:
    rows = open_split(source.path, source.config, split)
    kind = rows.features.get(source.column)
    if getattr(kind, "dtype", None) not in ("string", "large_string"):
        raise RekindleError(
            expected=f"a column {source.column!r} of text in {source.path}",
            got=f"columns {', '.join(f'{name} ({type(each).__name__})' for name, each in rows.features.items())}",
            fix="name the column: TextSource(..., column=...)",
        )
    return rows
