"""Rows as TensorBoard events."""

import pytest

from rekindle.lab.runs.execute import EngineError
from rekindle.lab.runs.tensorboard import write_events


def test_tensorboard_events_can_be_read_back(tmp_path):
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed: pip install 'rekindle[tensorboard]'",
    )
    rows = [{"epoch": 0, "accuracy": 0.25, "methods": "fire"}, {"epoch": 1, "accuracy": 0.5, "loss": 2}]
    assert write_events(tmp_path, rows) == 3
    read = reader.EventAccumulator(str(tmp_path)).Reload()
    assert [(point.step, point.value) for point in read.Scalars("accuracy")] == [(0, 0.25), (1, 0.5)]
    assert read.Tags()["scalars"] == ["accuracy", "loss"]


def test_missing_tensorboard_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(EngineError, match=r"rekindle\[tensorboard\]"):
        write_events(tmp_path, [])
