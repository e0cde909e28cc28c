"""A checkpoint is the old one or the new one."""

import os

import pytest
import torch

from rekindle.lab.runs import checkpoint
from rekindle.lab.runs.checkpoint import NAME, CheckpointError, read, tidy, write


def test_what_was_written_is_read(tmp_path):
    folder = tmp_path / "not" / "there"
    assert read(folder) is None
    for content in ({"weights": {"a": torch.arange(3.0)}, "epoch": 3}, {"epoch": 4}):
        write(folder, content)
        found = read(folder)
        assert found["epoch"] == content["epoch"] and found.keys() == content.keys()
    assert [path.name for path in folder.iterdir()] == [NAME]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_in_the_middle_leaves_the_last_one(tmp_path, monkeypatch, step):
    write(tmp_path, {"epoch": 1})

    def full(*_):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync", full) if step == "fsync" else (type(tmp_path), "replace", full)))
        with pytest.raises(CheckpointError, match="room for a checkpoint") as caught:
            write(tmp_path, {"epoch": 2})
    assert caught.value.got == "No space left on device"
    assert read(tmp_path) == {"epoch": 1} and [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize("content", [b"", b"PK half of a file", b"not a checkpoint at all"])
def test_a_damaged_file_is_told(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read") as caught:
        read(tmp_path)
    assert "delete it" in caught.value.fix


def test_code_is_not_loaded(tmp_path):
    torch.save({"code": os.getcwd}, tmp_path / NAME)
    with pytest.raises(CheckpointError):
        read(tmp_path)


def test_halves_of_killed_processes_go_and_nothing_else(tmp_path):
    write(tmp_path, {"epoch": 1})
    for name in (f"{NAME}.1234.part", f"{NAME}.abcd.part", "rows.jsonl"):
        (tmp_path / name).write_text("half")
    tidy(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, "rows.jsonl"]
    tidy(tmp_path / "not there")
    assert checkpoint.read(tmp_path) == {"epoch": 1}
