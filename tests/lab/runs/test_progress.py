import io

import pytest
from rich.console import Console

from rekindle.lab.runs.execute import EngineError, Event
from rekindle.lab.runs.progress import Display
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.tensorboard import write_events

RUNS = [Run(methods="none"), Run(methods="fire")]
EVENTS = [
    Event("started", RUNS[0].key),
    Event("row", RUNS[0].key, {"stage": 0, "epoch": 1, "accuracy": 0.5}),
    Event("retried", RUNS[0].key, text="its process died [signal]"),
    Event("started", RUNS[1].key),
    Event("finished", RUNS[1].key, {"stage": 1, "epoch": 9, "accuracy": 0.75}),
    Event("failed", RUNS[0].key, text="RuntimeError: [bold] is no markup"),
]


def shown(**options):
    paper = io.StringIO()
    with Display(RUNS, Console(file=paper, width=120, **options)) as display:
        for event in EVENTS:
            display(event)
    return display, paper.getvalue()


def test_plain_lines_when_it_is_no_terminal():
    _, said = shown()
    assert said.splitlines() == [
        "[0/2] started: methods=none",
        "[0/2] retried: methods=none, its process died [signal]",
        "[0/2] started: methods=fire",
        "[1/2] finished: methods=fire, stage 1, epoch 9, accuracy 0.75",
        "[2/2] failed: methods=none, RuntimeError: [bold] is no markup",
    ]


def test_one_display_on_a_terminal():
    display, said = shown(force_terminal=True)
    assert "all runs, 1 failed" in said and "2/2" in said and "[bold] is no markup" in said
    assert display.lines == {}, "no line of a run is left over"


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
