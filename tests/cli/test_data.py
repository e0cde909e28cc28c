"""`rekindle data`: the words of the command line."""

import json

import numpy as np
import pytest

from rekindle.cli import main
from rekindle.lab.data import load, tokenizer
from rekindle.lab.data.store import VARIABLE, write_stored

TEXT = "".join(f"A line of text, number {k}.\n" for k in range(400))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text(TEXT.upper())
    return tmp_path / "cache"


def prepare(*words):
    return main(["data", "prepare", *words])


def test_bytes_of_two_files(cache, capsys):
    assert prepare("mine", "a.txt", "b.txt", "--validation", "0.2") == 0
    said = capsys.readouterr().out
    data = load("mine:context=32")
    train, val = len(data.train.streams["mine"]), len(data.test.streams["mine"])
    assert train + val == 2 * len(TEXT) and f"{train:,} tokens to learn from and {val:,} for validation" in said
    assert "bytes: vocabulary 256, uint16, end of text None" in said and "data: mine:context=256" in said


def test_bpe_with_files_for_validation_somewhere_else(cache, tmp_path, capsys):
    pytest.importorskip("tokenizers")
    words = ["mine", "a.txt", "--tokenizer", "bpe", "--vocabulary", "300", "--validation-files", "b.txt"]
    assert prepare(*words, "--folder", str(tmp_path / "there")) == 0
    ids = np.fromfile(tmp_path / "there" / "mine" / "val.bin", np.uint16)
    bpe = tokenizer("mine", tmp_path / "there")
    assert bpe.decode(ids) == TEXT.upper() + "<|endoftext|>" and bpe.vocabulary == 300
    assert "was asked for" not in capsys.readouterr().out and not cache.exists()


def test_a_vocabulary_that_the_text_does_not_fill_is_told(cache, capsys):
    pytest.importorskip("tokenizers")
    assert prepare("mine", "a.txt", "--tokenizer", "bpe") == 0
    assert "a vocabulary of 4096 was asked for" in capsys.readouterr().out


def test_the_files_of_gpt2(cache, capsys):
    pytest.importorskip("tokenizers")
    assert prepare("own", "a.txt", "--tokenizer", "bpe", "--vocabulary", "300") == 0
    assert prepare("mine", "a.txt", "--tokenizer", "gpt2", "--tokenizer-folder", str(cache / "own")) == 0
    assert (cache / "mine" / "train.bin").read_bytes() == (cache / "own" / "train.bin").read_bytes()
    assert json.loads((cache / "mine" / "meta.json").read_text())["tokenizer"] == "gpt2"
    assert prepare("other", "a.txt", "--tokenizer", "gpt2", "--tokenizer-folder", "nowhere") == 2
    assert "vocab.json and merges.txt, or tokenizer.json" in capsys.readouterr().err


def test_replace(cache, capsys):
    assert prepare("mine", "a.txt") == 0
    assert prepare("mine", "b.txt") == 2 and "--replace" in capsys.readouterr().err
    assert prepare("mine", "b.txt", "--replace") == 0
    assert tokenizer("mine").decode(load("mine:context=8").train.streams["mine"]).startswith("A LINE")


@pytest.mark.parametrize(
    "words",
    [
        ["x"],
        ["x", "a.txt", "--from", "wikitext103"],
        ["x", "a.txt", "--vocabulary", "300"],
        ["x", "a.txt", "--tokenizer", "gpt2"],
        ["x", "a.txt", "--tokenizer-folder", "."],
        ["x", "a.txt", "--rows", "3"],
        ["x", "a.txt", "--path", "."],
        ["x", "a.txt", "--validation", "0.1", "--validation-files", "b.txt"],
        ["x", "--from", "wikitext103", "--validation-files", "b.txt"],
        ["x", "a.txt", "--validation", "1.5"],
        ["x", "a.txt", "--validation", "0"],
        ["x", "none.txt"],
        ["digits", "a.txt"],
    ],
)
def test_words_that_do_not_go_together(cache, capsys, words):
    assert prepare(*words) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["expected", "got", "what to do"]
    assert not cache.exists()


def test_from_the_hub_by_way_of_a_local_folder(cache, tmp_path, monkeypatch, capsys):
    datasets = pytest.importorskip("datasets")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    (tmp_path / "hub").mkdir()
    for part, count in (("train", 50), ("validation", 5)):
        rows = [f"{part} {k}\n" for k in range(count)]
        parquet.write_table(arrow.table({"text": rows}), tmp_path / "hub" / f"{part}.parquet")
    assert prepare("wiki", "--from", "wikitext103", "--path", "hub", "--rows", "20") == 0
    assert prepare("web", "--from", "openwebtext", "--path", "hub", "--validation", "0.1") == 0
    texts = {name: tokenizer(name).decode(load(f"{name}:context=8").test.streams[name]) for name in ("wiki", "web")}
    assert texts["wiki"] == "".join(f"validation {k}\n" for k in range(5))
    assert texts["web"] == "".join(f"train {k}\n" for k in range(45, 50))
    assert len(load("wiki:context=8").train.streams["wiki"]) == sum(len(f"train {k}\n") for k in range(20))


def test_list(cache, capsys):
    assert main(["data", "list"]) == 0 and "MB" in capsys.readouterr().out
    assert prepare("mine", "a.txt") == 0
    write_stored(cache / "images", "train", np.zeros((2, 4, 4, 1)), np.zeros(2))
    for name in ("mine.part-1", "other"):
        (cache / name).mkdir()
    (cache / "broken").mkdir()
    (cache / "broken" / "meta.json").write_text("{")
    assert main(["data", "list"]) == 0
    said = capsys.readouterr().out
    for name, what in {
        "mine ": "tokens, bytes, vocabulary 256",
        "images": "images",
        "mine.part-1": "killed",
        "other": "unknown",
        "broken": "cannot be read",
    }.items():
        assert any(name in line and what in line for line in said.splitlines()), (name, said)


def test_download_knows_the_names(cache, capsys):
    assert main(["data", "download", "nothing"]) == 2
    assert "fashion_mnist" in capsys.readouterr().err


def test_a_second_text_has_the_tokenizer_of_the_first(cache, capsys):
    pytest.importorskip("tokenizers")
    assert prepare("own", "a.txt", "--tokenizer", "bpe", "--vocabulary", "300") == 0
    assert prepare("second", "b.txt", "--like", "own") == 0
    own, second = ((cache / name / "tokenizer.json").read_text() for name in ("own", "second"))
    assert own == second
    assert prepare("third", "b.txt", "--like", "nowhere") == 2
    assert "rekindle data list" in capsys.readouterr().err
    assert prepare("third", "b.txt", "--like", "own", "--tokenizer", "bytes") == 2
    assert "--like or --tokenizer, not both" in capsys.readouterr().err
