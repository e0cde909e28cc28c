"""Token files in nanoGPT's format: `<name>/{train,val}.bin`, raw tokens, with `meta.json` beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import Field

from rekindle.errors import RekindleError
from rekindle.lab.data.dataset import Dataset
from rekindle.lab.data.folders import told
from rekindle.lab.data.store import VARIABLE, cache
from rekindle.training.tokens import Tokens

TYPES = {"uint16": "<u2", "uint32": "<u4"}  # little-endian on every machine
META, TOKENIZER = "meta.json", "tokenizer.json"
FILES = ("train.bin", "val.bin", META, TOKENIZER)
SCANNED_WHOLE = 1 << 26  # bytes up to which every token is looked at when a file is loaded
SAMPLES, SAMPLE = 64, 1 << 20  # of larger ones: this many parts of this many bytes, at even distances
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Meta:
    """What `meta.json` says about the tokens beside it.

    Args:
        tokenizer: What made them: bytes, bpe or gpt2.
        vocabulary: Number of different tokens that there may be.
        dtype: Of the files: uint16, or uint32 where the vocabulary does not fit.
        end_of_text: The token that ends a document, if there is one.
        tokens: How many each file has.
        sources: What was read: files, or splits of a data set, with sizes and SHA-256.
    """

    tokenizer: Literal["bytes", "bpe", "gpt2"]
    vocabulary: Count
    dtype: Literal["uint16", "uint32"]
    end_of_text: int | None
    tokens: dict[str, int]
    sources: list[dict[str, Any]]

    def to_json(self) -> str:
        """Return the text of the file."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def dtype_for(vocabulary: int) -> Literal["uint16", "uint32"]:
    """Return the smallest type that holds all tokens of a vocabulary.

    Example:
        >>> dtype_for(50257), dtype_for(65536), dtype_for(65537)
        ('uint16', 'uint16', 'uint32')
    """
    return "uint16" if vocabulary <= 1 << 16 else "uint32"


def write_bin(file: Path, parts: Iterable[np.ndarray], dtype: str) -> int:
    """Write tokens one after the other, as they come, and return how many there were."""
    count = 0
    with told(file), file.open("xb") as out:
        for ids in parts:
            out.write(ids.astype(TYPES[dtype]).tobytes())
            count += len(ids)
        out.flush()
        os.fsync(out.fileno())
    return count


def write_text(file: Path, text: str) -> None:
    """Write a small file, down to the disk."""
    with told(file), file.open("x", encoding="utf-8", newline="") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def read_meta(folder: Path) -> Meta | None:
    """Return what is known about the tokens of a folder; None if it has no `meta.json`, as nanoGPT's own."""
    file = folder / META
    if not file.is_file():
        return None
    try:
        return pydantic.TypeAdapter(Meta).validate_json(file.read_bytes())
    except pydantic.ValidationError as error:
        wrong = error.errors()[0]
        raise RekindleError(
            expected=f"what `rekindle data prepare` writes in {file}",
            got=f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}",
            fix="prepare it again, or remove the file and give the vocabulary: name:vocabulary=50257",
        ) from None


def load_tokens(
    name: str,
    folder: Path | None = None,
    context: Count = 1024,
    tokens: Count | None = None,
    windows: Count = 512,
    vocabulary: Annotated[int, Field(ge=2)] | None = None,
) -> Dataset:
    """Load the tokens of a folder. They stay on disk and are read where windows are drawn.

    Args:
        name: Of the folder.
        folder: Of all data sets, if not the cache.
        context: Tokens of a window.
        tokens: Only the first so many of the tokens to learn from; all of them if left out.
        windows: Most windows that are evaluated.
        vocabulary: Number of different tokens, for folders without `meta.json`: 50257 for GPT-2's.

    Raises:
        RekindleError: A file is missing or is not as it should be.
    """
    place = (folder or cache()) / name
    meta = read_meta(place)
    size = _vocabulary(name, place, meta, vocabulary)
    train, test = (_open(place / f"{part}.bin", meta, size) for part in ("train", "val"))
    if tokens is not None and tokens > len(train):
        raise RekindleError(
            expected=f"at least {tokens:,} tokens to learn from in {name!r}",
            got=f"{len(train):,}",
            fix="leave `tokens` out for all of them, or prepare a longer text",
        )
    first, second = (Tokens({name: stream}, context, windows=windows) for stream in (train[:tokens], test))
    return Dataset(name, first, second, size)


def load_second(name: str, first: Dataset, folder: Path | None = None) -> Dataset:
    """Load another text to go with one that was loaded: windows as long, evaluated as often, of the same tokenizer.

    Args:
        name: Of the folder.
        first: What it goes with.
        folder: Of all data sets, if not the cache.

    Raises:
        RekindleError: A file is missing or is not as it should be, or the tokens are not of the same tokenizer.
    """
    assert isinstance(first.train, Tokens) and isinstance(first.test, Tokens)
    place = folder or cache()
    differs = _tokenizers_differ(place / first.name, place / name)
    vocabulary = None if (place / name / META).is_file() else first.classes
    second = load_tokens(name, folder, first.train.context, None, first.test.windows, vocabulary)
    if differs or second.classes != first.classes:
        raise RekindleError(
            expected=f"both texts in tokens of one tokenizer, that of {first.name!r}: one that every text can have is "
            "bytes",
            got=differs
            or f"a vocabulary of {second.classes:,} in {name!r}, and of {first.classes:,} in {first.name!r}",
            fix=f"prepare it with the same one: rekindle data prepare {name} FILE --like {first.name} --replace",
        )
    return second


def _tokenizers_differ(one: Path, other: Path) -> str:
    """Return how the tokenizers of two folders differ, or nothing; a folder that does not tell is taken at its word."""
    first, second = read_meta(one), read_meta(other)
    if first is None or second is None:
        return ""
    if (first.tokenizer == "bytes") != (second.tokenizer == "bytes"):
        return f"{second.tokenizer} in {other.name!r}, and {first.tokenizer} in {one.name!r}"
    files = [folder / TOKENIZER for folder in (one, other)]
    if all(file.is_file() for file in files) and len({json.dumps(_merges(file)) for file in files}) > 1:
        return f"{second.tokenizer} in both, but made of other texts: {TOKENIZER} in {other.name!r} differs"
    return ""


def _merges(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))["model"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RekindleError(
            expected=f"the tokenizer that `rekindle data prepare` wrote to {file}",
            got=f"a file that cannot be read: {error}",
            fix="prepare the text again with --replace",
        ) from error


def _vocabulary(name: str, folder: Path, meta: Meta | None, given: int | None) -> int:
    if meta is not None and given in (None, meta.vocabulary):
        return meta.vocabulary
    if meta is not None:
        raise RekindleError(
            expected=f"the vocabulary of {folder / META}, {meta.vocabulary}",
            got=f"vocabulary={given}",
            fix="leave it out: it is needed only for folders without that file",
        )
    if given is None and (folder / "train.bin").is_file():
        raise RekindleError(
            expected=f"{META} in {folder}, or the vocabulary of its tokens",
            got="neither",
            fix=f"give it, as in {name}:vocabulary=50257 for the tokens of GPT-2",
        )
    return given or 0  # that there are no files is told when they are opened


def _open(file: Path, meta: Meta | None, vocabulary: int) -> np.ndarray:
    dtype = np.dtype(TYPES[meta.dtype if meta else "uint16"])
    if not file.is_file():
        raise RekindleError(
            expected=f"tokens in {file}",
            got="no such file",
            fix=f"write them with `rekindle data prepare {file.parent.name} FILE ...`, or set {VARIABLE} to the folder "
            f"that has {file.parent.name}/train.bin and val.bin",
        )
    found = file.stat()
    expected = None if meta is None else meta.tokens.get(file.stem)
    if not found.st_size or found.st_size % dtype.itemsize or expected not in (None, found.st_size // dtype.itemsize):
        raise RekindleError(
            expected=f"{'tokens' if expected is None else f'{expected:,} tokens'} of {dtype.itemsize} bytes in {file}",
            got=f"{found.st_size:,} bytes",
            fix="the file is torn or of another type: write or copy it again",
        )
    largest = _largest(file, dtype.str, found.st_size, found.st_mtime_ns)
    if largest >= vocabulary:
        raise RekindleError(
            expected=f"tokens from 0 to {vocabulary - 1} in {file}, as the vocabulary of {vocabulary} says",
            got=f"token {largest}",
            fix="give the vocabulary with which it was written, or write it again",
        )
    return np.memmap(file, dtype=dtype, mode="r")


@lru_cache(maxsize=64)
def _largest(file: Path, dtype: str, size: int, changed: int) -> int:
    """Return the largest token: of all in a file of up to 64 MB, of 64 samples of 1 MB in a larger one.

    17 GB would take a minute to read; a token that a sample does not see raises in the model's embedding.
    """
    stream = np.memmap(file, dtype=np.dtype(dtype), mode="r")
    step = SAMPLE // stream.itemsize
    if size <= SCANNED_WHOLE:
        starts = np.arange(0, len(stream), step)
    else:
        starts = np.linspace(0, len(stream) - step, SAMPLES).astype(np.int64)
    return max(int(stream[start : start + step].max()) for start in starts)
