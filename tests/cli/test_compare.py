import sys
import textwrap

import pytest
import torch
from safetensors.torch import save_file

from rekindle.cli import main, verbs
from rekindle.lab.runs.store import Store

CODE = """
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    def network():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))

    def batches():
        random = torch.Generator().manual_seed(0)
        return [(torch.rand(16, 1, 8, 8, generator=random), torch.arange(16) % 10) for _ in range(4)]

    def loss(model, batch):
        return 2 * cross_entropy(model(batch[0]), batch[1])

    def largest(model, batches):
        return float(model[1].weight.max())
"""
SHORT = ("--methods", "fire", "--steps", "2", "--seeds", "2")


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_to_compare.py").write_text(textwrap.dedent(CODE))
    monkeypatch.delitem(sys.modules, "mine_to_compare", raising=False)
    torch.manual_seed(0)
    weights = {"1.weight": torch.randn(8, 64), "1.bias": torch.zeros(8)}
    save_file(weights | {"3.weight": torch.randn(10, 8), "3.bias": torch.zeros(10)}, tmp_path / "old.safetensors")
    return ("compare", "old.safetensors", "--model", "mine_to_compare:network")


def test_digits_by_name(checkpoint, capsys):
    assert main([*checkpoint, "--train", "digits", *SHORT, "--out", "runs"]) == 0
    said = capsys.readouterr().out
    names = [line.split()[0] for line in said.splitlines() if line.strip()]
    assert [name for name in names if name in ("none", "fire", "fresh")] == ["none", "fire", "fresh"]
    assert "2 seeds of 2 steps" in said and "rows: runs" in said
    rows = Store("runs").rows()
    assert len(rows) == 12 and {row["methods"] for row in rows} == {"none", "fire", "fresh"}


def test_functions_of_the_user(checkpoint, capsys):
    own = ("--loss", "mine_to_compare:loss", "--metric", "mine_to_compare:largest", "--epochs", "1")
    data = ("--train", "mine_to_compare:batches", "--test", "mine_to_compare:batches")
    assert main([*checkpoint, *data, *SHORT, *own]) == 0
    said = capsys.readouterr().out
    assert "2 seeds of 4 steps" in said  # an epoch is four batches
    assert "metric" in said and "accuracy" not in said


def test_page(checkpoint, capsys, tmp_path):
    pytest.importorskip("vl_convert")
    assert main([*checkpoint, "--train", "digits", *SHORT, "--html", "page.html"]) == 0
    assert "page: page.html" in capsys.readouterr().out
    text = (tmp_path / "page.html").read_text()
    assert "Verdict" in text and "2 seeds of 2 steps" in text and "Difference to going on untreated" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--train", "mine_to_compare:batches"], "--test"),
        (["--train", "mine_to_compare:nothing", "--test", "digits"], "package.module:name"),
        (["--train", "digits", "--methods", "no_such_method"], "a method: "),
        (["--train", "digits", "--seeds", "1"], "at least 2 different seeds"),
    ],
)
def test_errors_are_three_lines(checkpoint, capsys, words, told):
    assert main([*checkpoint, *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["expected", "got", "what to do"]
    assert told in lines[0]


def test_files_with_an_underscore_are_no_verbs():
    assert "compare" in verbs() and not [name for name in verbs() if name.startswith("_")]


def test_help_tells_the_cost(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["compare", "--help"])
    assert not stop.value.code
    assert "(methods + 2) x seeds trainings" in " ".join(capsys.readouterr().out.replace("│", " ").split())
