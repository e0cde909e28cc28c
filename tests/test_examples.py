"""The examples run as their heads say, at a tiny size, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
LINES = 60  # of an example at most, so that it is read whole


def run(*words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
    told = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert told.returncode == 0, told.stderr[-3000:]
    return told.stdout


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_an_example_is_short_and_says_how_it_is_called(example):
    text = (ROOT / "examples" / example).read_text("utf-8")
    assert len(text.splitlines()) <= LINES and f"python examples/{example}" in text.split('"""')[1]


def gpt2_directory(folder, text):
    """Write what `save_pretrained` writes: a small GPT-2 and a tokenizer made of the text."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator([text], tokenizers.trainers.BpeTrainer(vocab_size=280, initial_alphabet=letters))
    transformers.PreTrainedTokenizerFast(tokenizer_object=bpe).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"vocab_size": 280, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return transformers.GPT2LMHeadModel.from_pretrained(folder)


def test_continue_pretraining(tmp_path):
    pytest.importorskip("accelerate")
    text = "".join(f"Line {k} of a text that says {k * k} and little else.\n" for k in range(200))
    (tmp_path / "new.txt").write_text(text)
    before = gpt2_directory(tmp_path / "checkpoint", text)
    words = ["--context", 16, "--batch", 4, "--trial-steps", 4, "--seeds", 2, "--steps", 5, "--out", tmp_path / "out"]
    example = ROOT / "examples" / "continue_pretraining.py"
    said = run(example, tmp_path / "checkpoint", tmp_path / "new.txt", *words)
    assert "shrink_perturb:shrink=0.8" in said and "trainability" in said and "'train_loss'" in said
    after = type(before).from_pretrained(tmp_path / "out" / "last")
    assert not torch.equal(after.lm_head.weight, before.lm_head.weight)
