"""Tokenizers: back and forth, in pieces as at once, and as others do it."""

import json
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rekindle.errors import RekindleError
from rekindle.lab.data import documents, encoding
from rekindle.lab.data.documents import Document
from rekindle.lab.data.encoding import Bytes, NewBpe, read_bpe

TEXT = "The quick brown fox's tail, it's 42 m long.\n\n  The lazy dogs'll sleep — müde, 眠い。\r\n\tThe end?  \n" * 20


def ids_of(tokenizer, *texts, size=11):
    data = [text.encode() if isinstance(text, str) else text for text in texts]
    found = [Document("a", [each[k : k + size] for k in range(0, len(each), size)]) for each in data]
    return np.concatenate([np.zeros(0, int), *tokenizer.encode(found)]).tolist()


@pytest.fixture(scope="module")
def bpe():
    pytest.importorskip("tokenizers")
    return NewBpe(300).train([Document("a", [TEXT.encode()])])


@pytest.fixture
def gpt2_files(bpe, tmp_path):
    """The two files as GPT-2's are, with the end of a text as the last token."""
    described = json.loads(bpe.to_json())["model"]
    tokens = sorted(described["vocab"], key=described["vocab"].get)
    tokens = [token for token in tokens if token != encoding.END_OF_TEXT] + [encoding.END_OF_TEXT]
    folder = tmp_path / "gpt2"
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({token: k for k, token in enumerate(tokens)}), "utf-8")
    merges = "\n".join(" ".join(pair) for pair in described["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", "utf-8")
    return folder


def test_bytes_of_anything():
    everything = bytes(range(256)) * 3
    assert ids_of(Bytes(), everything) == list(everything)
    assert Bytes().decode(np.frombuffer("grün".encode(), np.uint8)) == "grün"
    assert Bytes().decode([0xC3]) == "\ufffd"
    assert (Bytes().vocabulary, Bytes().end_of_text) == (256, None)


def test_bpe_is_as_large_as_asked_for_and_ends_documents(bpe):
    assert bpe.vocabulary == 300
    one, two = ids_of(bpe, "The quick"), ids_of(bpe, " fox")
    assert ids_of(bpe, "The quick", " fox") == one + two and one[-1] == two[-1] == bpe.end_of_text
    assert ids_of(bpe, "") == [bpe.end_of_text]
    assert bpe.decode(one) == "The quick<|endoftext|>"


def test_the_same_text_gives_the_same_vocabulary(bpe):
    assert NewBpe(300).train([Document("a", [TEXT[:300].encode(), TEXT[300:].encode()])]).to_json() == bpe.to_json()


def test_a_small_text_gives_a_small_vocabulary():
    pytest.importorskip("tokenizers")
    assert NewBpe(4096).train([Document("a", [b"abab"])]).vocabulary == 258  # bytes, the end, and ab


WORDS = st.sampled_from(
    [*"aZ9.'\n\t \r\u00a0\u3000\u2028\x1c\x85äé眠🙂", "'s", "'ll", "The", "  ", "\n\n", "<|endoftext|>"]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(WORDS, max_size=60).map("".join) | st.text(max_size=60))
def test_pieces_give_the_tokens_of_the_whole_text(bpe, monkeypatch, text):
    """The slow and obvious way: all at once, by the package itself."""
    monkeypatch.setattr(documents, "PIECE", 3)
    at_once = bpe._tokenizer.encode(text, add_special_tokens=False).ids
    assert ids_of(bpe, text, size=2) == at_once + [bpe.end_of_text]
    assert bpe.decode(at_once) == text


def test_the_cut_can_be_wrong(bpe, monkeypatch):
    """The test above sees a cut in a wrong place."""
    monkeypatch.setattr(documents, "PIECE", 3)
    monkeypatch.setattr(documents, "CUT", documents.re.compile(r"(?<=\s)\S"))
    at_once = bpe._tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert ids_of(bpe, TEXT) != at_once + [bpe.end_of_text]


def test_end_of_text_is_never_read_from_a_text(bpe):
    assert ids_of(bpe, "a <|endoftext|> b").count(bpe.end_of_text) == 1
    assert bpe.decode(ids_of(bpe, "a <|endoftext|> b")[:-1]) == "a <|endoftext|> b"


def test_files_of_gpt2_are_read_as_transformers_reads_them(gpt2_files):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2Tokenizer(str(gpt2_files / "vocab.json"), str(gpt2_files / "merges.txt"))
    ours = read_bpe(gpt2_files)
    assert (ours.kind, ours.vocabulary, ours.end_of_text) == ("gpt2", 300, 299)
    for text in (TEXT, "It's 3'clock;  \n\n don't", "日本 語\u3000x"):
        assert ids_of(ours, text)[:-1] == theirs(text)["input_ids"]
    assert theirs.eos_token_id == ours.end_of_text


def test_tokenizer_json_is_read_back_and_by_transformers(bpe, tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "tokenizer.json").write_text(bpe.to_json(), "utf-8")
    again = read_bpe(tmp_path, "bpe")
    assert again.to_json() == bpe.to_json() and ids_of(again, TEXT) == ids_of(bpe, TEXT)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert theirs(TEXT)["input_ids"] == ids_of(bpe, TEXT)[:-1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"normalizer": {"type": "NFC"}}, "no normalizer"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "pre-tokenizer ByteLevel"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "no space before a text"),
        ({"model": {"type": "WordPiece", "vocab": {}, "merges": []}}, "model BPE"),
        ({"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}, "255 bytes are missing"),
    ],
)
def test_other_tokenizers_are_refused(bpe, tmp_path, change, told):
    (tmp_path / "tokenizer.json").write_text(json.dumps({**json.loads(bpe.to_json()), **change}))
    with pytest.raises(RekindleError) as error:
        read_bpe(tmp_path)
    assert told in error.value.got


def test_files_that_are_missing_or_broken(gpt2_files, tmp_path):
    with pytest.raises(RekindleError, match="vocab.json and merges.txt, or tokenizer.json") as told:
        read_bpe(tmp_path / "nowhere")
    assert told.value.got == "no such folder"
    (gpt2_files / "merges.txt").write_text("no such pair\n")
    with pytest.raises(RekindleError, match="fetch the files again"):
        read_bpe(gpt2_files)
    (gpt2_files / "merges.txt").unlink()
    with pytest.raises(RekindleError, match="1 other files: vocab.json"):
        read_bpe(gpt2_files)
    (gpt2_files / "vocab.json").write_text('{"a": 0}')
    (gpt2_files / "merges.txt").write_text("")
    with pytest.raises(RekindleError, match="255 bytes are missing"):
        read_bpe(gpt2_files)


@pytest.mark.parametrize("vocabulary", [-1, 0, 256])
def test_vocabularies_that_make_no_sense(vocabulary):
    pytest.importorskip("tokenizers")
    with pytest.raises(RekindleError, match="at least 257"):
        NewBpe(vocabulary)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(RekindleError, match=r"rekindle\[text\]"):
        NewBpe()
    assert ids_of(Bytes(), b"ab") == [97, 98]
