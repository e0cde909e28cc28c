"""Texts of the hub, from local folders of the same format."""

import hashlib
import sys

import numpy as np
import pytest

from rekindle.errors import RekindleError
from rekindle.lab.data import HubCorpus, NewBpe, TextSource, prepare, tokenizer
from rekindle.lab.data.bins import read_meta
from rekindle.lab.data.hub_text import TEXTS, _Part

# As the hub has WikiText: a row is a line with its line break, and blank lines are empty.
LINES = ["", " = One = \n", "", " Some text about one , and one more . \n", " And more . \n"] * 40
ARTICLES = [f"Article {k}.\n\nIt has some text of its own, {k * k} words long." for k in range(100)]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Return a function that writes a folder of parquet files."""
    datasets = pytest.importorskip("datasets")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")

    def write(column="text", **parts):
        (tmp_path / "hub").mkdir()
        for part, rows in parts.items():
            parquet.write_table(arrow.table({column: rows}), tmp_path / "hub" / f"{part}.parquet")
        return str(tmp_path / "hub")

    return write


def texts(documents):
    return [b"".join(document.chunks).decode() for document in documents]


def test_lines_are_one_text_as_it_was_published(hub):
    corpus = HubCorpus(TextSource(hub(train=LINES, validation=LINES[:5]), validation="validation", lines=True))
    article = " \n = One = \n \n Some text about one , and one more . \n And more . \n"
    assert texts(corpus.train()) == [article * 40] and texts(corpus.val()) == [article]
    train, val = corpus.sources()
    assert (train["rows"], train["split"], val["rows"], val["split"]) == (200, "train", 5, "validation")
    assert train["sha256"] == hashlib.sha256(article.encode() * 40).hexdigest()
    assert train["bytes"] == len(article) * 40


def test_rows_are_documents_and_the_last_are_for_validation(hub):
    source = TextSource(hub(train=ARTICLES), fraction=0.05)
    assert texts(HubCorpus(source).train()) == ARTICLES[:95] and texts(HubCorpus(source).val()) == ARTICLES[95:]
    corpus = HubCorpus(source, validation=0.5, rows=10)
    assert texts(corpus.train()) == ARTICLES[:5] and texts(corpus.val()) == ARTICLES[5:10]
    assert [each["split"] for each in corpus.sources()] == ["train[:5]", "train[5:10]"]


def test_prepared_as_nanogpt_does_it(hub, tmp_path):
    """Each document, then the end of a text: the slow and obvious way."""
    pytest.importorskip("tokenizers")
    folder = prepare("web", HubCorpus(TextSource(hub(train=ARTICLES))), NewBpe(300), folder=tmp_path)
    bpe, meta = tokenizer("web", tmp_path), read_meta(folder)
    train = np.fromfile(folder / "train.bin", np.uint16)
    assert bpe.decode(train) == "".join(f"{text}<|endoftext|>" for text in ARTICLES[:90])
    assert (train == meta.end_of_text).sum() == 90 and len(train) == meta.tokens["train"]
    expected = [bpe._tokenizer.encode(text).ids + [bpe.end_of_text] for text in ARTICLES[90:]]
    assert np.fromfile(folder / "val.bin", np.uint16).tolist() == sum(expected, [])


def test_mistakes(hub):
    folder = hub(column="content", train=ARTICLES[:2], validation=ARTICLES[:1])
    with pytest.raises(RekindleError, match=r"content \(Value\)"):
        HubCorpus(TextSource(folder))
    source = TextSource(folder, column="content")
    with pytest.raises(RekindleError, match="split 'test'"):
        HubCorpus(TextSource(folder, column="content", validation="test"))
    with pytest.raises(RekindleError, match="1 rows, 1 of them"):
        HubCorpus(source, rows=1)
    with pytest.raises(RekindleError, match="above 0 and below 1"):
        HubCorpus(source, validation=0.0)
    with pytest.raises(RekindleError, match="leave it out"):
        HubCorpus(TextSource(folder, column="content", validation="validation"), validation=0.1)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(RekindleError, match=r"rekindle\[hub\]"):
        HubCorpus(TEXTS["openwebtext"])


def test_rows_that_cannot_be_read_are_not_taken_for_a_full_disk():
    class Torn:
        def iter(self, batch_size):
            yield {"text": ["one"]}
            raise OSError("not an arrow file")

    with pytest.raises(RekindleError, match="fetch it again"):
        texts(_Part(Torn(), TextSource("somewhere"), "train").documents())
