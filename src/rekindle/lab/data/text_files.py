"""Text files as documents: read in chunks, the end of each for validation, hashed on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rekindle.errors import RekindleError
from rekindle.lab.data.documents import Document, Fingerprint, check_part

CHUNK = 1 << 20  # bytes read at once
NEAR = 1 << 16  # bytes before the place of a cut in which a line break is looked for


class TextFile:
    """A file that has something in it.

    Args:
        path: Of the file.

    Raises:
        RekindleError: There is no such file, it is empty or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise RekindleError(
                expected=f"a text file {path}, which is read more than once",
                got="a pipe or a device",
                fix="write the text to a file first",
            )
        if not path.is_file():
            raise RekindleError(
                expected=f"a text file {path}",
                got="a folder" if path.is_dir() else "no such file",
                fix="check the name; a folder's files are named one by one, as in folder/*.txt",
            )
        self.path, self.fingerprint = path, Fingerprint()
        self._stamp = self._now()
        self.size = self._stamp[0]
        if not self.size:
            raise RekindleError(expected=f"text in {path}", got="an empty file", fix="leave it out")

    def document(self, start: int, end: int) -> Document:
        """Return the bytes from one place to another as a document."""
        return Document(str(self.path), self._read(start, end), start)

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        for chunk in self._chunks(start, end):
            self.fingerprint.add(start, chunk)
            start += len(chunk)
            yield chunk

    def _chunks(self, start: int, end: int) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                while start < end and (chunk := file.read(min(CHUNK, end - start))):
                    start += len(chunk)
                    yield chunk
        except OSError as error:
            raise RekindleError(
                expected=f"a file {self.path} that can be read", got=str(error), fix="check its permissions and disk"
            ) from error

    def cut(self, fraction: float) -> int:
        """Return where the last part of a file begins: after a line break if one is near, else at a character.

        Args:
            fraction: Size of the part; it may be larger by up to a tenth of it and 64 kB.

        Raises:
            RekindleError: One of the two parts would be empty.
        """
        place = self.size - max(1, round(fraction * self.size))
        begin = max(0, place - min(NEAR, (self.size - place) // 10))
        line = b"".join(self._chunks(begin, place)).rfind(b"\n")
        if line >= 0:
            place = begin + line + 1
        else:  # bytes of a character other than its first begin with the bits 10
            near = b"".join(self._chunks(max(0, place - 3), place + 1))
            place -= next((k for k, byte in enumerate(reversed(near)) if byte & 0xC0 != 0x80), 0)
        if place < 1:
            raise RekindleError(
                expected=f"text to learn from and text for validation in {self.path}",
                got=f"{self.size} bytes, too short to be divided",
                fix="take a longer text, or name a file for validation: --validation-files",
            )
        return place

    def source(self, train: int) -> dict[str, Any]:
        """Return what was read of it; the first bytes were to learn from, the others for validation.

        Raises:
            RekindleError: The file was changed in the meantime.
        """
        if self._now() != self._stamp or self.fingerprint.place != self.size:
            raise RekindleError(
                expected=f"{self.path} to stay as it is while it is read",
                got=f"{self.fingerprint.place:,} bytes read of {self.size:,}, and another size or time on disk",
                fix="wait until it is written, and run the command again",
            )
        return {
            "file": str(self.path),
            "bytes": self.size,
            "train_bytes": train,
            "val_bytes": self.size - train,
            "sha256": self.fingerprint.sha256,
        }

    def _now(self) -> tuple[int, int]:
        found = self.path.stat()
        return found.st_size, found.st_mtime_ns


class FileCorpus:
    """Files, of which either the end of each is for validation, or some are.

    Args:
        files: To learn from.
        validation: Part of each file, from its end, that is for validation; not used where files are given for that.
        validation_files: Files for validation.

    Raises:
        RekindleError: A file is missing, empty or too short, or for both, or the part makes no sense.
    """

    def __init__(self, files: Sequence[Path], validation: float = 0.1, validation_files: Sequence[Path] = ()) -> None:
        check_part(validation)
        if not files:
            raise RekindleError(expected="files with text", got="none", fix="name at least one")
        if both := [path for path in validation_files if any(path.resolve() == one.resolve() for one in files)]:
            raise RekindleError(
                expected="files for validation that are not learned from",
                got=f"{both[0]} for both",
                fix="name other files, or leave --validation-files out for the end of each file",
            )
        whole = bool(validation_files)
        opened = [TextFile(path) for path in files]
        self._files = [(file, file.size if whole else file.cut(validation)) for file in opened]
        self._files += [(TextFile(path), 0) for path in validation_files]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file, _ in self._files)

    def train(self) -> Iterator[Document]:
        """Yield the first part of each file."""
        return (file.document(0, cut) for file, cut in self._files if cut)

    def val(self) -> Iterator[Document]:
        """Yield the last part of each file."""
        return (file.document(cut, file.size) for file, cut in self._files if cut < file.size)

    def sources(self) -> list[dict[str, Any]]:
        """Return the files with their sizes and hashes."""
        return [file.source(cut) for file, cut in self._files]
