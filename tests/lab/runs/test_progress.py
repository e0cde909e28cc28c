import io

from rich.console import Console

from rekindle.lab.runs.execute import Event
from rekindle.lab.runs.progress import Display
from rekindle.lab.runs.spec import Run

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
