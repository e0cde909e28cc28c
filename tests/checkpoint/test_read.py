"""Checkpoints are read one tensor at a time, and broken ones are refused in words."""

import json

import pytest
import torch
from safetensors.torch import save_file

import rekindle as rk
from rekindle.checkpoint.read import open_checkpoint

STATE = {"fc.weight": torch.arange(12.0).reshape(3, 4), "fc.bias": torch.ones(3)}


def test_safetensors_file(tmp_path):
    save_file(STATE, tmp_path / "model.safetensors")
    for path in (tmp_path / "model.safetensors", tmp_path):
        tensors, shapes = open_checkpoint(path)
        assert shapes == {"fc.bias": (3,), "fc.weight": (3, 4)}
        assert all(torch.equal(tensors[name], STATE[name]) for name in STATE)


def test_shards(tmp_path):
    for number, name in enumerate(STATE):
        save_file({name: STATE[name]}, tmp_path / f"model-{number}.safetensors")
    index = {"weight_map": {name: f"model-{number}.safetensors" for number, name in enumerate(STATE)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    tensors, _ = open_checkpoint(tmp_path)
    assert set(tensors) == set(STATE)
    assert torch.equal(tensors["fc.weight"], STATE["fc.weight"])
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(rk.RekindleError, match="model-1.safetensors is missing"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}])
def test_torch_file(tmp_path, wrap):
    torch.save(wrap(STATE), tmp_path / "model.pt")
    tensors, shapes = open_checkpoint(tmp_path / "model.pt")
    assert shapes["fc.weight"] == (3, 4)
    assert torch.equal(tensors["fc.bias"], STATE["fc.bias"])


class Evil:
    def __reduce__(self):
        return print, ("code was run",)


def test_a_file_that_runs_code_is_refused(tmp_path, capsys):
    torch.save(Evil(), tmp_path / "model.pt")
    with pytest.raises(rk.RekindleError, match="refused"):
        open_checkpoint(tmp_path / "model.pt")
    assert "code was run" not in capsys.readouterr().out


@pytest.mark.parametrize("keep", [0, 5, 60, 150])
def test_torn_files_are_refused(tmp_path, keep):
    path = tmp_path / "model.safetensors"
    save_file(STATE, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(rk.RekindleError, match="torn"):
        open_checkpoint(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(rk.RekindleError, match="no file"):
        open_checkpoint(tmp_path / "nothing.safetensors")
