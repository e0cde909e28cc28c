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
        tensors, outlines, others = open_checkpoint(path)
        assert {name: tuple(each.shape) for name, each in outlines.items()} == {"fc.bias": (3,), "fc.weight": (3, 4)}
        assert all(each.is_meta and each.dtype == torch.float32 for each in outlines.values()) and not others
        assert all(torch.equal(tensors[name], STATE[name]) for name in STATE)


def test_shards(tmp_path):
    for number, name in enumerate(STATE):
        save_file({name: STATE[name]}, tmp_path / f"model-{number}.safetensors")
    index = {"weight_map": {name: f"model-{number}.safetensors" for number, name in enumerate(STATE)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    tensors = open_checkpoint(tmp_path)[0]
    assert set(tensors) == set(STATE)
    assert torch.equal(tensors["fc.weight"], STATE["fc.weight"])
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(rk.RekindleError, match="model-1.safetensors is missing"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}])
def test_torch_file(tmp_path, wrap):
    torch.save(wrap(STATE), tmp_path / "model.pt")
    tensors, outlines, _ = open_checkpoint(tmp_path / "model.pt")
    assert tuple(outlines["fc.weight"].shape) == (3, 4)
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


def test_types_are_known_without_reading(tmp_path):
    types = ("float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bfloat16", "int64", "bool")
    state = {name: torch.ones(2, 2).to(getattr(torch, name)) for name in types}
    save_file(state, tmp_path / "model.safetensors")
    _, outlines, _ = open_checkpoint(tmp_path / "model.safetensors")
    assert {name: each.dtype for name, each in outlines.items()} == {name: t.dtype for name, t in state.items()}


def test_entries_that_hold_tensors_in_another_form_are_named(tmp_path):
    torch.save({**STATE, "packed": (torch.ones(2), None), "epoch": 3}, tmp_path / "model.pt")
    tensors, _, others = open_checkpoint(tmp_path / "model.pt")
    assert set(tensors) == set(STATE) and others == {"packed": "no tensor but a tuple with tensors in it"}
