"""`rekindle audit`: the same as `rk.audit`, from files."""

import json
import sys
import textwrap

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import rekindle as rk
from rekindle.cli import main

CODE = """
    from torch import nn

    def network():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))
"""


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_to_audit.py").write_text(textwrap.dedent(CODE))
    monkeypatch.delitem(sys.modules, "mine_to_audit", raising=False)
    model = network()
    save_file(model.state_dict(), tmp_path / "start.safetensors")
    with torch.no_grad():
        model[1].weight.mul_(50)
    save_file(model.state_dict(), tmp_path / "old.safetensors")
    return tmp_path


def test_weights_alone_need_no_code(folder, capsys):
    assert main(["audit", "old.safetensors", "--json", "found.json"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(str(rk.audit("old.safetensors"))) and "JSON: found.json" in said
    content = json.loads((folder / "found.json").read_text())
    expected = rk.audit("old.safetensors").readings["weight_norm"]
    assert content["readings"]["weight_norm"]["summary"] == pytest.approx(expected.summary)


def test_model_data_and_reference(folder, capsys):
    words = ["--model", "mine_to_audit:network", "--data", "digits", "--reference", "start.safetensors"]
    assert main(["audit", "old.safetensors", *words, "--batches", "2", "--batch-size", "32", "--no-probe"]) == 0
    said = capsys.readouterr().out
    assert "large_norms" in said or "times the norm" in said
    assert "not run: sfe" not in said and "not run: dormant" not in said


def test_some_metrics_and_a_page(folder, capsys):
    pytest.importorskip("vl_convert")
    assert main(["audit", "old.safetensors", "--metrics", "dfi", "--html", "page.html"]) == 0
    assert "page: page.html" in capsys.readouterr().out and "<html" in (folder / "page.html").read_text()


def test_mistakes_are_three_lines(folder, capsys):
    for words, told in [
        (["nothing.safetensors"], "nothing.safetensors"),
        (["old.safetensors", "--model", "mine_to_audit:nobody"], "nobody"),
        (["old.safetensors", "--metrics", "fdi"], "a metric"),
    ]:
        assert main(["audit", *words]) == 2
        said = capsys.readouterr().err
        assert told in said and said.startswith("expected: ") and "what to do: " in said


def test_a_file_with_other_numbers(folder, capsys):
    state = {**network().state_dict(), "base.weight": torch.ones(4, 4, dtype=torch.int8)}
    save_file(state, folder / "mixed.safetensors")
    assert main(["audit", "mixed.safetensors"]) == 0
    assert "left out: base.weight: int8" in capsys.readouterr().out
