"""Files in two parts, read in chunks and hashed on the way."""

import hashlib
import os

import pytest

from rekindle.errors import RekindleError
from rekindle.lab.data import text_files
from rekindle.lab.data.text_files import FileCorpus, TextFile


@pytest.fixture
def written(tmp_path):
    def write(content, name="a.txt"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


def parts(corpus):
    return [[b"".join(document.chunks) for document in documents] for documents in (corpus.train(), corpus.val())]


def test_the_end_of_each_file_is_for_validation(written, monkeypatch):
    monkeypatch.setattr(text_files, "CHUNK", 7)
    one, two = b"".join(b"line %d\n" % k for k in range(500)), b"x" * 1000
    corpus = FileCorpus([written(one), written(two, "b.txt")], 0.25)
    train, val = parts(corpus)
    assert [a + b for a, b in zip(train, val, strict=True)] == [one, two]
    assert val[0].startswith(b"line ") and 0.25 <= len(val[0]) / len(one) < 0.28
    assert len(val[1]) == 250  # no line break: exactly


def test_some_files_are_for_validation(written):
    corpus = FileCorpus([written(b"one"), written(b"two", "b")], validation_files=[written(b"three", "c")])
    assert parts(corpus) == [[b"one", b"two"], [b"three"]]
    assert [(each["train_bytes"], each["val_bytes"]) for each in corpus.sources()] == [(3, 0), (3, 0), (0, 5)]


@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.35, 0.5, 0.77])
def test_no_character_is_cut(written, fraction):
    text = "aäぁ𝄞" * 10
    train, val = parts(FileCorpus([written(text.encode())], fraction))
    assert train[0].decode() + val[0].decode() == text
    assert len(val[0]) - fraction * len(text.encode()) < 4


def test_sources_are_sizes_and_hashes(written):
    content = b"some text\n" * 100
    corpus = FileCorpus([written(content)], 0.1)
    for _ in range(2):  # the first part is read twice, as when a vocabulary is made of it
        [b"".join(document.chunks) for document in corpus.train()]
    parts(corpus)
    [found] = corpus.sources()
    assert (found["bytes"], found["sha256"]) == (1000, hashlib.sha256(content).hexdigest())
    assert found["train_bytes"] + found["val_bytes"] == 1000


def test_a_file_that_changes_while_it_is_read_is_told(written):
    corpus = FileCorpus([written(b"some text\n" * 100)])
    parts(corpus)
    written(b"other text\n" * 100)
    with pytest.raises(RekindleError, match="stay as it is"):
        corpus.sources()


def test_mistakes(written, tmp_path):
    for path, told in ((tmp_path / "none", "no such file"), (tmp_path, "a folder"), (written(b""), "an empty file")):
        with pytest.raises(RekindleError) as error:
            TextFile(path)
        assert error.value.got == told and str(path) in error.value.expected
    with pytest.raises(RekindleError, match="too short to be divided"):
        FileCorpus([written(b"x")])
    with pytest.raises(RekindleError, match="too short to be divided"):
        FileCorpus([written("ä".encode())], 0.5)
    with pytest.raises(RekindleError, match="above 0"):
        FileCorpus([written(b"text")], 2)
    with pytest.raises(RekindleError, match="at least one"):
        FileCorpus([])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(RekindleError, match="a pipe or a device"):
        TextFile(pipe)
    text = written(b"some text")
    with pytest.raises(RekindleError, match="for both"):
        FileCorpus([text], validation_files=[text.parent / "." / text.name])
