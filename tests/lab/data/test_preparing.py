"""From text files to what a language model is trained on."""

import hashlib
import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rekindle.errors import RekindleError
from rekindle.lab.data import Bytes, FileCorpus, NewBpe, load, prepare, preparing, tokenizer
from rekindle.lab.data.bins import read_meta
from rekindle.lab.data.store import VARIABLE

TEXT = "".join(f"Line {k}: it's the {k % 7}th of — well — {k * k} lines.\n\n" for k in range(300))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(TEXT, "utf-8")
    return tmp_path / "cache"


@pytest.fixture
def file(cache):
    return cache.parent / "text.txt"


def read(folder, part, dtype=np.uint16):
    return np.fromfile(folder / f"{part}.bin", dtype)


def test_bytes_there_and_back(cache, file):
    folder = prepare("mine", [file])
    train, val = read(folder, "train"), read(folder, "val")
    assert np.concatenate([train, val]).tolist() == list(TEXT.encode())
    assert tokenizer("mine").decode(train) + tokenizer("mine").decode(val) == TEXT
    assert sorted(path.name for path in folder.iterdir()) == ["meta.json", "train.bin", "val.bin"]
    assert json.loads((folder / "meta.json").read_text()) == {
        "tokenizer": "bytes",
        "vocabulary": 256,
        "dtype": "uint16",
        "end_of_text": None,
        "tokens": {"train": len(train), "val": len(val)},
        "sources": [
            {
                "file": str(file),
                "bytes": len(TEXT.encode()),
                "train_bytes": len(train),
                "val_bytes": len(val),
                "sha256": hashlib.sha256(TEXT.encode()).hexdigest(),
            }
        ],
    }


def test_bpe_there_and_back(cache, file):
    pytest.importorskip("tokenizers")
    (cache.parent / "more.txt").write_text("Another text. " * 50)
    folder = prepare("mine", [file, cache.parent / "more.txt"], NewBpe(400))
    bpe, data = tokenizer("mine"), load("mine:context=16")
    train, val = read(folder, "train"), read(folder, "val")
    parts = [bpe.decode(ids).split("<|endoftext|>") for ids in (train, val)]
    assert [len(part) for part in parts] == [3, 3] and parts[0][2] == parts[1][2] == ""
    assert parts[0][0] + parts[1][0] == TEXT and parts[0][1] + parts[1][1] == "Another text. " * 50
    expected = [bpe._tokenizer.encode(text).ids + [bpe.end_of_text] for text in parts[0][:2]]
    assert train.tolist() == sum(expected, [])
    assert (data.classes, len(data.train.streams["mine"])) == (bpe.vocabulary, len(train))
    assert data.classes == read_meta(folder).vocabulary == 400


def test_the_vocabulary_is_made_of_what_is_learned_from(cache, tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "a").write_text("aaaa bbbb " * 20)
    (tmp_path / "b").write_text("zzzzzzzz " * 50)
    prepare("mine", FileCorpus([tmp_path / "a"], validation_files=[tmp_path / "b"]), NewBpe(300))
    ids = json.loads((cache / "mine" / "tokenizer.json").read_text())["model"]["vocab"]
    assert "aaaa" in ids and "zz" not in ids


def test_large_vocabularies_have_four_bytes(cache, file, monkeypatch):
    class Large(Bytes):
        vocabulary = 70_000

        def encode(self, documents):
            yield from (ids.astype(np.int64) + 69_000 for ids in super().encode(documents))

    folder = prepare("mine", [file], Large())
    assert read_meta(folder).dtype == "uint32"
    assert (read(folder, "train", np.uint32) - 69_000).astype(np.uint8).tobytes() + (
        read(folder, "val", np.uint32) - 69_000
    ).astype(np.uint8).tobytes() == TEXT.encode()
    assert load("mine:context=8").train.pair(slice(1))[0][0, 0] == 69_000 + ord("L")


def test_what_is_done_is_told(cache, file):
    pytest.importorskip("tokenizers")
    heard = {}
    prepare("mine", [file], NewBpe(300), tell=lambda what, size: heard.update({what: heard.get(what, 0) + size}))
    assert list(heard) == ["vocabulary", "train", "val"] and heard["vocabulary"] == heard["train"]
    assert heard["train"] + heard["val"] == len(TEXT.encode())


@pytest.mark.parametrize("at", ["train", "val", "meta"])
@pytest.mark.parametrize("old", [False, True])
def test_an_interruption_leaves_what_was_there(cache, file, monkeypatch, at, old):
    if old:
        prepare("mine", [file])
    before = {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}

    def interrupt(what, size=0):
        if what == at:
            raise KeyboardInterrupt

    if at == "meta":
        monkeypatch.setattr(preparing, "write_text", lambda path, text: interrupt("meta"))
    file.write_text("other text\n" * 100)
    with pytest.raises(KeyboardInterrupt):
        prepare("mine", [file], replaces=True, tell=interrupt)
    assert {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()} == before
    assert [path.name for path in cache.iterdir()] == (["mine"] if old else [])


def test_a_disk_that_takes_no_more(cache, file):
    """The system's own limit on the size of a file: writing fails in the middle."""
    prepare("mine", [file])
    before = (cache / "mine" / "train.bin").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(RekindleError, match="File too large") as told:
            prepare("mine", [file], replaces=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "make room" in told.value.fix and (cache / "mine" / "train.bin").read_bytes() == before
    assert [path.name for path in cache.iterdir()] == ["mine"]


def test_names_that_are_taken_or_no_names(cache, file):
    prepare("mine", [file])
    with pytest.raises(RekindleError, match="--replace"):
        prepare("mine", [file])
    file.write_text("other text\n" * 100)
    prepare("mine", [file], replaces=True)
    assert tokenizer("mine").decode(read(cache / "mine", "val")).startswith("other text")
    for name in ("", "../mine", "a b", "a.b", "digits"):
        with pytest.raises(RekindleError, match="a plain name"):
            prepare(name, [file])


def test_texts_that_cannot_be_taken_leave_nothing(cache, file):
    pytest.importorskip("tokenizers")
    file.write_bytes(b"gr\xfcn " * 100)
    with pytest.raises(RekindleError, match="at byte 2"):
        prepare("mine", [file], NewBpe(300))
    prepare("bytes", [file])
    file.write_bytes(b"ab")
    with pytest.raises(RekindleError, match="at least 2 tokens in the part 'train'"):
        prepare("mine", [file])
    assert [path.name for path in cache.iterdir()] == ["bytes"]


def test_a_set_that_does_not_say_how_it_was_made(cache, file):
    (prepare("mine", [file]) / "meta.json").unlink()
    with pytest.raises(RekindleError, match="read_bpe"):
        tokenizer("mine")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Bytes()", "NewBpe(500)"])
def test_memory_does_not_grow_with_the_text(cache, file, kind):
    pytest.importorskip("tokenizers")
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of a process is read from /proc")
    code = (
        "import sys; from pathlib import Path; from rekindle.lab.data import Bytes, NewBpe, prepare; "
        f"prepare(sys.argv[1], [Path(sys.argv[2])], {kind}, folder=Path(sys.argv[3])); "
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"  # maxrss may be the parent's
    )
    used = []
    for times in (250, 2500):  # about 4 and 40 MB
        file.write_text(TEXT * times, "utf-8")
        command = [sys.executable, "-c", code, f"of{times}", str(file), str(cache)]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        used.append(int(found.stdout) / 1000)  # MB
    assert used[1] - used[0] < 20
