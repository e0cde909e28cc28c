"""The state in a checkpoint's folder."""

import pytest
import torch

from rekindle.errors import KeeperError
from rekindle.integrations.state_file import NAME, read_state, write_state

STATE = {"host_step": 3, "keeper": {"start": torch.arange(3.0), "places": [1, (2, "a")]}}


def test_what_is_written_is_read(tmp_path):
    write_state(tmp_path, STATE)
    found = read_state(tmp_path, 3)
    assert torch.equal(found["keeper"]["start"], STATE["keeper"]["start"]) and found["keeper"]["places"] == [
        1,
        (2, "a"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    write_state(tmp_path, STATE)

    def full(state, path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError):
        write_state(tmp_path, STATE)
    assert read_state(tmp_path, 3)["host_step"] == 3 and len(list(tmp_path.iterdir())) == 1


def test_no_file_a_broken_one_and_one_of_another_step_are_refused(tmp_path):
    with pytest.raises(KeeperError, match="without which a training with rekindle cannot be resumed"):
        read_state(tmp_path, 3)
    write_state(tmp_path, STATE)
    with pytest.raises(KeeperError, match="one of step 3"):
        read_state(tmp_path, 4)
    torch.save([1], tmp_path / NAME)
    with pytest.raises(KeeperError, match="one of step list"):
        read_state(tmp_path, 3)
    (tmp_path / NAME).write_bytes(b"no state")
    with pytest.raises(KeeperError, match="resume from another checkpoint"):
        read_state(tmp_path, 3)
