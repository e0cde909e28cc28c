"""Token files: written as nanoGPT reads them, read as nanoGPT writes them, and checked."""

import json

import numpy as np
import pytest
import torch

from rekindle.errors import RekindleError, SettingsError
from rekindle.lab.data import bins, load
from rekindle.lab.data.bins import Meta, load_second, load_tokens, read_meta, write_bin, write_text
from rekindle.lab.data.encoding import NewBpe, tokenizer
from rekindle.lab.data.preparing import prepare
from rekindle.lab.data.store import VARIABLE, write_stored


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def write(cache, train, val, vocabulary=None, dtype="uint16", name="mine"):
    """As nanoGPT writes them; with our meta.json if a vocabulary is given."""
    (cache / name).mkdir()
    np.asarray(train, dtype).tofile(cache / name / "train.bin")
    np.asarray(val, dtype).tofile(cache / name / "val.bin")
    if vocabulary:
        meta = Meta("bpe", vocabulary, dtype, 0, {"train": len(train), "val": len(val)}, [])
        write_text(cache / name / "meta.json", meta.to_json())
    return cache / name


@pytest.mark.parametrize(("dtype", "ids"), [("uint16", [1, 65535, 3]), ("uint32", [70000, 2, 3])])
def test_the_format_is_nanogpts(tmp_path, dtype, ids):
    count = write_bin(tmp_path / "train.bin", [np.array(ids[:1]), np.array(ids[1:])], dtype)
    assert count == 3 and np.fromfile(tmp_path / "train.bin", dtype).tolist() == ids
    order = "little"
    assert (tmp_path / "train.bin").read_bytes() == b"".join(k.to_bytes(int(dtype[4:]) // 8, order) for k in ids)


def test_windows_of_a_stream(cache):
    write(cache, range(100), range(50, 80), vocabulary=100)
    data = load("mine:context=4,windows=3")
    assert (data.name, data.classes, data.shape, len(data.train), len(data.test)) == ("mine", 100, (4,), 96, 26)
    inputs, labels = data.train.pair(torch.tensor([95]))
    assert inputs.tolist() == [[95, 96, 97, 98]] and labels.tolist() == [[96, 97, 98, 99]]
    assert isinstance(data.train.streams["mine"], np.memmap) and not data.train.streams["mine"].flags.writeable
    assert sum(len(batch) for batch, _ in data.test.in_order(2)) == 3
    assert load("mine:context=4").test.windows == 512


def test_the_first_tokens_to_learn_from_only(cache):
    write(cache, range(2000), range(2000), vocabulary=2000)
    data = load("mine:tokens=1500")
    assert data.shape == (1024,) and data.train.streams["mine"].tolist() == list(range(1500))
    assert len(data.test.streams["mine"]) == 2000
    with pytest.raises(RekindleError, match="at least 2,001 tokens"):
        load("mine:tokens=2001")


def test_folders_of_nanogpt_need_a_vocabulary(cache):
    write(cache, [0, 50256, 2] * 10, [1, 2] * 10)
    with pytest.raises(RekindleError, match="mine:vocabulary=50257"):
        load("mine:context=4")
    assert load("mine:context=4,vocabulary=50257").classes == 50257
    with pytest.raises(RekindleError, match="token 50256"):
        load("mine:context=4,vocabulary=50256")


def test_a_vocabulary_that_contradicts_is_refused(cache):
    write(cache, range(20), range(20), vocabulary=20)
    assert load("mine:context=4,vocabulary=20").classes == 20
    with pytest.raises(RekindleError, match="leave it out"):
        load("mine:context=4,vocabulary=30")


def test_large_vocabularies_have_four_bytes(cache):
    write(cache, [70000] * 20, [1] * 20, vocabulary=100_000, dtype="uint32")
    assert load("mine:context=4").train.pair(torch.tensor([0]))[0].tolist() == [[70000] * 4]


@pytest.mark.parametrize(("cut", "part"), [(1, "39 bytes"), (2, "38 bytes"), (40, "0 bytes")])
def test_torn_files(cache, cut, part):
    file = write(cache, range(20), range(20), vocabulary=20) / "val.bin"
    file.write_bytes(file.read_bytes()[: 40 - cut])
    with pytest.raises(RekindleError, match="20 tokens of 2 bytes") as told:
        load("mine:context=4")
    assert told.value.got == part


def test_missing_files_say_what_to_do(cache):
    (write(cache, range(20), range(20), vocabulary=20) / "val.bin").unlink()
    for spec in ("mine:context=4", "yours:context=4"):
        with pytest.raises(RekindleError, match="rekindle data prepare (mine|yours) FILE"):
            load(spec)
    with pytest.raises(RekindleError, match="rekindle data prepare yours FILE"):
        load("yours")


def test_texts_shorter_than_a_window(cache):
    write(cache, range(20), range(20), vocabulary=20)
    with pytest.raises(RekindleError, match="at least 1025 tokens"):
        load("mine")


@pytest.mark.parametrize("where", [0, 7, 19])
def test_tokens_outside_of_the_vocabulary_are_found_anywhere(cache, where):
    ids = list(range(20))
    ids[where] = 77
    write(cache, range(20), ids, vocabulary=20)
    with pytest.raises(RekindleError, match="token 77"):
        load("mine:context=4")


def test_of_large_files_samples_are_scanned(cache, monkeypatch):
    monkeypatch.setattr(bins, "SCANNED_WHOLE", 1000)
    monkeypatch.setattr(bins, "SAMPLE", 100)
    monkeypatch.setattr(bins, "SAMPLES", 4)
    ids = np.zeros(10_000, int)
    ids[5000] = 9  # between the samples
    write(cache, ids, np.zeros(10_000), vocabulary=2, name="unseen")
    assert load("unseen:context=4").classes == 2
    for name, place in (("first", 0), ("last", 9999)):
        ids[place] = 8
        write(cache, ids, np.zeros(10_000), vocabulary=2, name=name)
        with pytest.raises(RekindleError, match="token 8"):
            load(f"{name}:context=4")
        ids[place] = 0


def test_a_file_that_was_written_anew_is_looked_at_again(cache):
    folder = write(cache, [1] * 20, [1] * 20, vocabulary=2)
    assert load("mine:context=4").classes == 2
    np.full(20, 5, np.uint16).tofile(folder / "train.bin")
    with pytest.raises(RekindleError, match="token 5"):
        load("mine:context=4")


@pytest.mark.parametrize("change", [{"dtype": "int64"}, {"vocabulary": 0}, {"tokens": None}, {"tokenizer": "sorcery"}])
def test_wrong_descriptions(cache, change):
    file = write(cache, range(20), range(20), vocabulary=20) / "meta.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(RekindleError, match=next(iter(change))):
        read_meta(cache / "mine")
    file.write_text("{")
    with pytest.raises(RekindleError, match="JSON"):
        load_tokens("mine")


def test_images_and_tokens_have_their_own_settings(cache):
    write(cache, range(20), range(20), vocabulary=20)
    with pytest.raises(SettingsError, match="settings of mine: context, tokens, windows, vocabulary"):
        load("mine:size=8")
    for part in ("train", "test"):
        write_stored(cache / "images", part, np.zeros((2, 4, 4, 1)), np.zeros(2))
    with pytest.raises(SettingsError, match="settings of images: size"):
        load("images:context=8")
    write_stored(cache / "mine", "train", np.zeros((2, 4, 4, 1)), np.zeros(2))
    with pytest.raises(SettingsError, match="both train.bin and train.npz"):
        load("mine:context=4")


@pytest.mark.parametrize("setting", ["context=0", "tokens=0", "windows=0", "vocabulary=1", "context=many"])
def test_settings_that_make_no_sense(cache, setting):
    write(cache, range(20), range(20), vocabulary=20)
    with pytest.raises(SettingsError) as told:
        load(f"mine:{setting}")
    assert told.value.got == setting


def test_a_second_text_is_of_the_same_tokenizer_and_windows(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    texts = {"one": "a line of text; " * 60, "two": "words of another kind, many words. " * 40}
    for name, words in texts.items():
        (tmp_path / f"{name}.txt").write_text(words)
    prepare("one", [tmp_path / "one.txt"], NewBpe(280))
    prepare("own", [tmp_path / "two.txt"], NewBpe(280))
    prepare("like", [tmp_path / "two.txt"], tokenizer("one"))
    prepare("bytes", [tmp_path / "two.txt"])
    first = load_tokens("one", context=8, windows=3)
    second = load_second("like", first)
    assert (second.train.context, second.test.windows, second.classes) == (8, 3, first.classes)
    for name, words in (("own", "made of other texts"), ("bytes", "bytes in 'bytes', and bpe in 'one'")):
        with pytest.raises(RekindleError, match=words):
            load_second(name, first)
    (tmp_path / "like" / "meta.json").unlink()  # as nanoGPT's own
    assert load_second("like", first).classes == first.classes
