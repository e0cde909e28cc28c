"""Text into tokens and back: bytes, or a byte-level BPE, trained here or read from the files of GPT-2's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from rekindle.errors import RekindleError
from rekindle.lab.data.bins import read_meta
from rekindle.lab.data.documents import Document, pieces
from rekindle.lab.data.store import cache

END_OF_TEXT = "<|endoftext|>"
SMALLEST = 257  # tokens of a byte-level BPE: each byte, and the end of a text
AT_ONCE = 1 << 20  # characters that are tokenized together, on all cores
Kind = Literal["bytes", "bpe", "gpt2"]
GPT2_FILES = (("vocab.json", "merges.txt"), ("tokenizer.json",))


class Bytes:
    """Each byte is a token. Any file can be read; there is no end-of-text token.

    Example:
        >>> [ids.tolist() for ids in Bytes().encode([Document("a", [b"Hi"])])], Bytes().decode([72, 105])
        ([[72, 105]], 'Hi')
    """

    kind: ClassVar[Kind] = "bytes"
    vocabulary: ClassVar[int] = 256
    end_of_text: ClassVar[None] = None

    def encode(self, documents: Iterable[Document]) -> Iterator[np.ndarray]:
        """Yield the tokens of documents, in parts."""
        for document in documents:
            for chunk in document.chunks:
                yield np.frombuffer(chunk, np.uint8)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of tokens; bytes that are no UTF-8, as at a cut, become the replacement character."""
        return bytes(int(token) for token in ids).decode("utf-8", errors="replace")


class Bpe:
    """Byte-pair encoding on bytes, as GPT-2's. Each document ends with an end-of-text token.

    Tokens that the vocabulary has for special purposes are never read into a text: `<|endoftext|>` written out in it is
    tokenized as the characters that it is.

    Args:
        ids: Token ids by token, in GPT-2's spelling of bytes.
        merges: Pairs in the order in which they are merged.
        end_of_text: Its token id.
        kind: bpe if it was trained here, gpt2 if it was read.
    """

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]], end_of_text: int, kind: Kind) -> None:
        self._tokenizer = _byte_level(_package().models.BPE(vocab=dict(ids), merges=list(merges)))
        self.kind: Kind = kind
        self.vocabulary, self.end_of_text = max(ids.values()) + 1, end_of_text

    def encode(self, documents: Iterable[Document]) -> Iterator[np.ndarray]:
        """Yield the tokens of documents, in parts: those of each whole text, however it is cut into chunks."""
        for batch in _batches(piece for document in documents for piece in pieces(document)):
            found = self._tokenizer.encode_batch_fast([text for text, _ in batch], add_special_tokens=False)
            for encoded, (_, ends) in zip(found, batch, strict=True):
                yield np.array(encoded.ids + [self.end_of_text] * ends, np.uint32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of tokens; half characters at the ends become the replacement character."""
        text: str = self._tokenizer.decode([int(token) for token in ids], skip_special_tokens=False)
        return text

    def to_json(self) -> str:
        """Return it as the text of a `tokenizer.json`, which `transformers` reads too."""
        package = _package()
        shown = package.Tokenizer.from_str(self._tokenizer.to_str())
        shown.add_special_tokens([package.AddedToken(END_OF_TEXT, special=True, normalized=False)])
        text: str = shown.to_str(pretty=True)
        return text


Tokenizer: TypeAlias = Bytes | Bpe


@dataclass(frozen=True)
class NewBpe:
    """A BPE that is still to be trained on a text.

    Args:
        vocabulary: Number of tokens; there will be fewer where a text has fewer pairs that occur twice.

    Raises:
        RekindleError: The vocabulary cannot hold all bytes, or the package `tokenizers` is missing.

    Example:
        >>> bpe = NewBpe(vocabulary=260).train([Document("a", [b"low lower lowest low low"])])
        >>> bpe.vocabulary, bpe.decode(next(bpe.encode([Document("b", [b"slow"])])))
        (260, 'slow<|endoftext|>')
    """

    vocabulary: int = 4096

    def __post_init__(self) -> None:
        _package()
        if self.vocabulary < SMALLEST:
            raise RekindleError(
                expected=f"a vocabulary of at least {SMALLEST}: every byte, and the end of a text",
                got=str(self.vocabulary),
                fix="take 4096 for a small text, 32768 or more for a large one; --tokenizer bytes has 256",
            )

    def train(self, documents: Iterable[Document]) -> Bpe:
        """Return the trained one. Documents are read once, in pieces; words and their counts are held in memory."""
        package = _package()
        made = _byte_level(package.models.BPE())
        trainer = package.trainers.BpeTrainer(
            vocab_size=self.vocabulary,
            min_frequency=2,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=_alphabet(),
            show_progress=False,
        )
        made.train_from_iterator((text for document in documents for text, _ in pieces(document)), trainer)
        return _from_description(json.loads(made.to_str()), "the text", "bpe")


def read_bpe(folder: Path, kind: Kind = "gpt2") -> Bpe:
    """Return the BPE of a folder: GPT-2's `vocab.json` and `merges.txt`, or a `tokenizer.json` of the same make.

    Args:
        folder: Where the files are.
        kind: What the tokens are said to be of.

    Raises:
        RekindleError: The files are not there, or are of another kind of tokenizer.
    """
    found = next((names for names in GPT2_FILES if all((folder / name).is_file() for name in names)), None)
    if found is None:
        raise RekindleError(
            expected=f"vocab.json and merges.txt, or tokenizer.json, in {folder}",
            got=_listed(folder),
            fix="name the folder that has them: those of GPT-2 are at https://huggingface.co/openai-community/gpt2",
        )
    try:
        if found == GPT2_FILES[0]:
            vocabulary, merges = _package().models.BPE.read_file(*(str(folder / name) for name in found))
            return _checked(vocabulary, merges, vocabulary.get(END_OF_TEXT), str(folder), kind)
        return _from_description(json.loads((folder / found[0]).read_text("utf-8")), str(folder), kind)
    except RekindleError:
        raise
    except Exception as error:  # the package raises plain exceptions of many kinds
        raise RekindleError(
            expected=f"a byte-level BPE in {', '.join(found)} of {folder}",
            got=f"{type(error).__name__}: {error}",
            fix="fetch the files again",
        ) from error


def tokenizer(name: str, folder: Path | None = None) -> Tokenizer:
    """Return the tokenizer with which a data set was prepared, to read its tokens: `tokenizer("mine").decode(ids)`.

    Args:
        name: Of the data set.
        folder: Of all data sets, if not the cache.

    Raises:
        RekindleError: The data set does not say how it was made.
    """
    place = (folder or cache()) / name
    meta = read_meta(place)
    if meta is None:
        raise RekindleError(
            expected=f"meta.json in {place}, which `rekindle data prepare` writes",
            got="no such file",
            fix="check the name: `rekindle data list` shows what is there; where nanoGPT's scripts wrote the tokens, "
            "the files of GPT-2 are read by --tokenizer gpt2, or rekindle.lab.data.read_bpe(folder)",
        )
    return Bytes() if meta.tokenizer == "bytes" else read_bpe(place, meta.tokenizer)


def _from_description(text: Mapping[str, Any], where: str, kind: Kind) -> Bpe:
    """Build it anew from what a `tokenizer.json` says, after checking that nothing else is done to a text."""
    model, before = text["model"], text.get("pre_tokenizer") or {}
    same = {
        "model BPE": model.get("type") == "BPE" and not model.get("dropout") and not model.get("ignore_merges"),
        "no prefixes and suffixes": not (model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")),
        "no normalizer": text.get("normalizer") is None,
        "pre-tokenizer ByteLevel": before.get("type") == "ByteLevel" and before.get("use_regex", True),
        "no space before a text": not before.get("add_prefix_space"),
    }
    if not all(same.values()):
        raise RekindleError(
            expected=f"a tokenizer like GPT-2's in {where}: {', '.join(same)}",
            got=f"not so: {', '.join(name for name, holds in same.items() if not holds)}",
            fix="name a folder with the files of GPT-2, or train one on the text: --tokenizer bpe",
        )
    added = {token["content"]: token["id"] for token in text.get("added_tokens", ())}
    merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
    end = added.get(END_OF_TEXT, model["vocab"].get(END_OF_TEXT))
    return _checked(model["vocab"], merges, end, where, kind)


def _checked(vocabulary: Mapping[str, int], merges: Any, end: int | None, where: str, kind: Kind) -> Bpe:
    """Refuse a vocabulary that would leave something out of a text in silence."""
    missing = [token for token in _alphabet() if token not in vocabulary]
    if missing or end is None:
        raise RekindleError(
            expected=f"all 256 bytes and {END_OF_TEXT} in the vocabulary of {where}",
            got=f"{len(missing)} bytes are missing" if missing else f"no {END_OF_TEXT}",
            fix="fetch the files of GPT-2 again, or train a BPE on the text: --tokenizer bpe",
        )
    return Bpe({**vocabulary, END_OF_TEXT: end}, merges, end, kind)


def _batches(found: Iterable[tuple[str, bool]]) -> Iterator[list[tuple[str, bool]]]:
    batch: list[tuple[str, bool]] = []
    size = 0
    for piece in found:
        batch.append(piece)
        size += len(piece[0]) + 1
        if size >= AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _byte_level(model: Any) -> Any:
    package = _package()
    made = package.Tokenizer(model)
    made.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = package.decoders.ByteLevel()
    return made


def _alphabet() -> list[str]:
    alphabet: list[str] = sorted(_package().pre_tokenizers.ByteLevel.alphabet())
    return alphabet


def _listed(folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder"
    names = sorted(path.name for path in folder.iterdir())
    return f"{len(names)} other files: {', '.join(names[:5])}" if names else "an empty folder"


def _package() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise RekindleError(
            expected="the package `tokenizers`, for BPE",
            got="it is not installed",
            fix="pip install 'rekindle[text]', or take --tokenizer bytes, which needs nothing",
        ) from error
    return tokenizers
