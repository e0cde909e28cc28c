import io

from rich.console import Console

from rekindle.lab.runs.progress_bar import Bar


def shown(terminal, wanted=True):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with Bar(wanted, ["part", "all"], [10, 30], console) as bar:
        bar.tell({"accuracy": 0.5})
        bar.move(1, 5)
    return console.file.getvalue()


def test_tells_stage_epoch_and_what_remains():
    text = shown(terminal=True)
    assert "all (stage 2 of 2), epoch 5 of 30, accuracy 50.0%" in text and "15/40" in text


def test_is_silent_without_a_terminal_or_if_not_wanted():
    assert not shown(terminal=False)
    assert not shown(terminal=True, wanted=False)


def test_the_end_is_after_the_last_stage():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Bar(True, ["all"], [3], console) as bar:
        bar.move(1, 0)
    assert "done" in console.file.getvalue()
