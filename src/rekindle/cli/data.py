"""`rekindle data`: token files from text, data sets from the hub, and what is in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import tyro

if TYPE_CHECKING:
    from rekindle.lab.data.bins import Meta
    from rekindle.lab.data.documents import Corpus
    from rekindle.lab.data.encoding import NewBpe, Tokenizer


def prepare(
    name: Annotated[str, tyro.conf.arg(metavar="NAME"), tyro.conf.Positional],
    files: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE ..."), tyro.conf.Positional] = (),
    tokenizer: Literal["bytes", "bpe", "gpt2"] | None = None,
    vocabulary: int | None = None,
    tokenizer_folder: Path | None = None,
    like: str | None = None,
    validation: float | None = None,
    validation_files: tuple[Path, ...] = (),
    source: Annotated[Literal["wikitext103", "openwebtext"] | None, tyro.conf.arg(name="from")] = None,
    path: str | None = None,
    rows: int | None = None,
    folder: Path | None = None,
    replace: bool = False,
) -> None:
    """Write the tokens of text files to NAME/train.bin and val.bin, in nanoGPT's format.

    About 2 MB of text a second and core with a BPE, 60 with bytes; in some 400 MB of memory, however long the text is.

    Args:
        name: Under which a spec finds it, as in `data: NAME:context=256`.
        files: Texts of any size. Each is a document, which ends with an end-of-text token unless tokens are bytes.
        tokenizer: Each byte a token, if left out; a byte-level BPE trained on the text; or GPT-2's, from its files.
        vocabulary: Tokens of the BPE that is trained; 4096 if left out.
        tokenizer_folder: Where GPT-2's vocab.json and merges.txt, or its tokenizer.json, are.
        like: Take the tokenizer of a text that was prepared before, by its name, so that both can be mixed.
        validation: Part of each file, from its end, for validation, 0.1 if left out; of openwebtext's rows, 0.0005.
        validation_files: Files for validation, instead of a part of each.
        source: A text from the Hugging Face hub instead of files (pip install 'rekindle[hub]').
        path: Another repository, or a local folder of the same format, for --from.
        rows: Only the first so many rows of --from.
        folder: Folder of all data sets; $REKINDLE_DATA if left out.
        replace: Put it in the place of tokens of the same name, which are kept until it is complete.
    """
    from time import perf_counter

    from rekindle.lab.data.bins import read_meta
    from rekindle.lab.data.encoding import NewBpe
    from rekindle.lab.data.encoding import tokenizer as tokenizer_of
    from rekindle.lab.data.preparing import place_of
    from rekindle.lab.data.preparing import prepare as write

    began = perf_counter()
    place_of(name, folder, replace)  # before anything is fetched
    made = _tokenizer(tokenizer or "bytes", vocabulary, tokenizer_folder)
    if like is not None:
        if tokenizer is not None:
            raise _not_together("--like or --tokenizer, not both", f"--like {like} --tokenizer {tokenizer}")
        made = tokenizer_of(like, folder)
    texts = _texts(files, validation, validation_files, source, path, rows)
    with _progress() as tell:
        target = write(name, texts, made, folder=folder, replaces=replace, tell=tell)
    meta = read_meta(target)
    assert meta is not None
    print(describe(name, target, meta, perf_counter() - began))
    if isinstance(made, NewBpe) and meta.vocabulary < made.vocabulary:
        print(f"a vocabulary of {made.vocabulary} was asked for: the text has no more pairs that occur twice")


def download(name: Annotated[str, tyro.conf.Positional], folder: Path | None = None) -> None:
    """Fetch a data set of images from the Hugging Face hub (pip install 'rekindle[hub]').

    Args:
        name: mnist, cifar10, tiny_imagenet and others; an unknown one is answered with all of them.
        folder: Folder of all data sets; $REKINDLE_DATA if left out.
    """
    from rekindle.lab.data.hub import download as fetch

    print(f"{name}: {fetch(name, folder=folder)}")


def show(folder: Path | None = None) -> None:
    """Show what is in the folder of all data sets.

    Args:
        folder: $REKINDLE_DATA if left out.
    """
    from rich.table import Table
    from rich.text import Text

    from rekindle.lab.data.store import cache
    from rekindle.text import render

    where = folder or cache()
    table = Table(title=f"{where}", title_justify="left")
    for column in ("name", "what", "MB"):
        table.add_column(column, justify="right" if column == "MB" else "left", no_wrap=column == "name")
    places = sorted(where.iterdir()) if where.is_dir() else []
    for place in (place for place in places if place.is_dir()):
        size = sum(file.stat().st_size for file in place.iterdir() if file.is_file())
        table.add_row(Text(place.name), Text(_kind(place)), f"{size / 1e6:,.1f}")
    print(render(table))


def run(
    action: Annotated[
        Union[  # noqa: UP007 - tyro reads the annotations of each
            Annotated[Any, tyro.conf.subcommand("prepare", constructor=prepare, prefix_name=False)],
            Annotated[Any, tyro.conf.subcommand("download", constructor=download, prefix_name=False)],
            Annotated[Any, tyro.conf.subcommand("list", constructor=show, prefix_name=False)],
        ],
        tyro.conf.OmitArgPrefixes,
    ],
) -> None:
    """Turn text into tokens, fetch data sets, and list those that are there.

    Args:
        action: Which of them; it has been done when this is called.
    """


def describe(name: str, target: Path, meta: Meta, seconds: float) -> str:
    """Return what was written, how fast, and how to use it."""
    size = sum(source["bytes"] for source in meta.sources)
    return (
        f"{meta.tokens['train']:,} tokens to learn from and {meta.tokens['val']:,} for validation in {target}\n"
        f"{meta.tokenizer}: vocabulary {meta.vocabulary}, {meta.dtype}, end of text {meta.end_of_text}; "
        f"{size / 1e6:,.1f} MB of text in {seconds:.1f} s, {size / 1e6 / seconds:.1f} MB/s\n"
        f"use it as data: {name}:context=256"
    )


def _tokenizer(kind: str, vocabulary: int | None, folder: Path | None) -> Tokenizer | NewBpe:
    from rekindle.lab.data.encoding import Bytes, NewBpe, read_bpe

    if vocabulary is not None and kind != "bpe":
        raise _not_together("--vocabulary with --tokenizer bpe only", f"--tokenizer {kind} --vocabulary {vocabulary}")
    if (folder is not None) != (kind == "gpt2"):
        got = f"--tokenizer {kind}, {'no ' if folder is None else ''}--tokenizer-folder"
        raise _not_together("--tokenizer gpt2 and --tokenizer-folder, the folder of its files, together", got)
    if folder is not None:
        return read_bpe(folder)
    return Bytes() if kind == "bytes" else NewBpe() if vocabulary is None else NewBpe(vocabulary)


def _texts(
    files: tuple[Path, ...],
    validation: float | None,
    validation_files: tuple[Path, ...],
    source: str | None,
    path: str | None,
    rows: int | None,
) -> Corpus:
    from dataclasses import replace

    from rekindle.lab.data.hub_text import TEXTS, HubCorpus
    from rekindle.lab.data.text_files import FileCorpus

    if bool(files) == (source is not None):
        raise _not_together("either files or --from", "both" if files else "neither")
    if validation_files and (source is not None or validation is not None):
        raise _not_together("--validation-files with files only, and without --validation", "several of them")
    if source is None:
        if path is not None or rows is not None:
            raise _not_together("--path and --rows with --from only", "files")
        return FileCorpus(files, 0.1 if validation is None else validation, validation_files)
    where = TEXTS[source]
    if path is not None:  # a local folder has no configurations
        where = replace(where, path=path, config=None if Path(path).is_dir() else where.config)
    return HubCorpus(where, validation, rows)


def _not_together(expected: str, got: str) -> Exception:
    from rekindle.errors import SettingsError

    return SettingsError(expected=expected, got=got, fix="see `rekindle data prepare --help`")


def _progress() -> Any:
    """Return a context that gives the function to be told of chunks; it shows nothing where nobody looks."""
    import contextlib

    from rich.console import Console

    console = Console(stderr=True)
    return _bars(console) if console.is_terminal else contextlib.nullcontext()


def _bars(console: Any) -> Any:
    import contextlib
    from collections.abc import Callable, Iterator

    from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    @contextlib.contextmanager
    def showing() -> Iterator[Callable[[str, int], None]]:
        columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=console, transient=True) as bars:
            tasks: dict[str, Any] = {}

            def tell(what: str, size: int) -> None:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=None)
                bars.update(tasks[what], advance=size)

            yield tell

    return showing()


def _kind(place: Path) -> str:
    from rekindle.errors import RekindleError
    from rekindle.lab.data.bins import read_meta

    if ".part-" in place.name:
        return "being prepared, or left behind by a preparation that was killed"
    if ".old-" in place.name:
        return "replaced by a preparation that was killed before it could delete it"
    try:
        meta = read_meta(place)
    except RekindleError as error:
        return f"meta.json cannot be read: {error.got}"
    if meta is not None:
        counts = f"{meta.tokens.get('train', 0):,} and {meta.tokens.get('val', 0):,} tokens"
        return f"{counts}, {meta.tokenizer}, vocabulary {meta.vocabulary}"
    kinds = {"train.bin": "tokens without meta.json", "train.npz": "images"}
    return next((what for file, what in kinds.items() if (place / file).is_file()), "unknown")
