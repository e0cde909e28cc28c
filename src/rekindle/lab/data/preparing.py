"""From text to token files, which are there as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rekindle.errors import RekindleError, SettingsError
from rekindle.lab.data.bins import FILES, META, TOKENIZER, Meta, dtype_for, write_bin, write_text
from rekindle.lab.data.catalog import EMBEDDED
from rekindle.lab.data.documents import Corpus, Document
from rekindle.lab.data.encoding import Bpe, Bytes, NewBpe, Tokenizer
from rekindle.lab.data.folders import check_place, whole_folder
from rekindle.lab.data.store import cache
from rekindle.lab.data.text_files import FileCorpus

Tell = Callable[[str, int], None]


def prepare(
    name: str,
    texts: Corpus | Sequence[str | Path],
    tokenizer: Tokenizer | NewBpe | None = None,
    *,
    folder: Path | None = None,
    replaces: bool = False,
    tell: Tell | None = None,
) -> Path:
    """Write the tokens of texts as `<folder>/<name>/{train,val}.bin` and return that folder.

    Texts of any size are read in chunks, tokenized and written as they come. A BPE ends each document with its
    end-of-text token: each part of a file, each row of a data set of documents.

    Args:
        name: Under which `load` finds it.
        texts: Files, the last tenth of each for validation; or a `FileCorpus` or `HubCorpus`, which say more.
        tokenizer: `Bytes()`, which is taken if left out; `NewBpe(4096)`, to train one on the text; or what `read_bpe`
            reads from the files of GPT-2.
        folder: The cache; `$REKINDLE_DATA` if left out.
        replaces: Whether it may take the place of tokens of the same name.
        tell: Called with what is done (`vocabulary`, `train`, `val`) and the bytes of each chunk.

    Raises:
        RekindleError: Something is missing or makes no sense, or the disk is full; nothing was written.

    Example:
        >>> import tempfile
        >>> from rekindle.lab.data.bins import load_tokens
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     text = Path(folder, "text.txt")
        ...     _ = text.write_text("a line of text; " * 20)
        ...     _ = prepare("mine", [text], folder=Path(folder))
        ...     load_tokens("mine", Path(folder), context=8).train.pair(slice(1))[0].tolist()
        [[97, 32, 108, 105, 110, 101, 32, 111]]
    """
    target = place_of(name, folder, replaces)
    corpus: Corpus = FileCorpus([*map(Path, texts)]) if isinstance(texts, Sequence) else texts
    with whole_folder(target, FILES if replaces else None) as draft:
        if isinstance(tokenizer, NewBpe):
            tokenizer = tokenizer.train(_told(corpus.train(), "vocabulary", tell))
        _write(draft, corpus, tokenizer or Bytes(), tell)
    return target


def place_of(name: str, folder: Path | None = None, replaces: bool = False) -> Path:
    """Return the folder of a name in the cache after checking that tokens can be put there."""
    if name in EMBEDDED or not name.replace("_", "").replace("-", "").isalnum():
        raise SettingsError(
            expected=f"a plain name of letters, digits, - and _, but not {', '.join(EMBEDDED)}",
            got=repr(name),
            fix="write it as in my-books_2",
        )
    target = (folder or cache()) / name
    check_place(target, FILES if replaces else None)
    return target


def _write(draft: Path, corpus: Corpus, tokenizer: Tokenizer, tell: Tell | None) -> None:
    dtype, tokens = dtype_for(tokenizer.vocabulary), {}
    for part, documents in (("train", corpus.train()), ("val", corpus.val())):
        tokens[part] = write_bin(draft / f"{part}.bin", tokenizer.encode(_told(documents, part, tell)), dtype)
        if tokens[part] < 2:
            raise RekindleError(
                expected=f"at least 2 tokens in the part {part!r}: one, and what follows it",
                got=f"{tokens[part]}",
                fix="take a longer text",
            )
    if isinstance(tokenizer, Bpe):
        write_text(draft / TOKENIZER, tokenizer.to_json())
    meta = Meta(tokenizer.kind, tokenizer.vocabulary, dtype, tokenizer.end_of_text, tokens, corpus.sources())
    write_text(draft / META, meta.to_json())


def _told(documents: Iterable[Document], what: str, tell: Tell | None) -> Iterable[Document]:
    def chunks(document: Document) -> Iterator[bytes]:
        for chunk in document.chunks:
            yield chunk
            tell(what, len(chunk))  # type: ignore[misc]

    return documents if tell is None else (replace(document, chunks=chunks(document)) for document in documents)
