"""How a sweep shows itself: one live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining

from rekindle.lab.runs.execute import Event
from rekindle.lab.runs.rows import Row
from rekindle.lab.runs.spec import Run

ENDS = ("finished", "failed", "elsewhere")
SHOWN = ("stage", "epoch", "accuracy", "loss")


class Display:
    """Listens to the events of a sweep and shows them; a context manager.

    Args:
        runs: All runs that are to be shown.
        console: Where; lines instead of a live display if it is no terminal.
    """

    def __init__(self, runs: Sequence[Run], console: Console | None = None) -> None:
        self.console = console or Console()
        self.names = dict(zip((run.key for run in runs), labels(runs), strict=True))
        self.ended = self.failed = 0
        self.lines: dict[str, TaskID] = {}
        self.bars: Progress | None = None
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn())
            self.bars = Progress(*columns, TimeElapsedColumn(), Remaining(), console=self.console)
            self.overall = self.bars.add_task("all runs", total=len(runs))

    def __enter__(self) -> Display:
        if self.bars:
            self.bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bars:
            self.bars.stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self.ended += event.kind in ENDS
        self.failed += event.kind == "failed"
        if self.bars:
            self._update(self.bars, event)
        if event.kind != "row" and not (self.bars and event.kind == "started"):
            self.console.print(escape(self.line(event)), highlight=False, soft_wrap=True)

    def line(self, event: Event) -> str:
        """Return an event as one line of text."""
        told = event.text or describe(event.row)
        name = self.names.get(event.key, event.key)
        return f"[{self.ended}/{len(self.names)}] {event.kind.replace('_', ' ')}: {name}" + (
            f", {told}" if told else ""
        )

    def _update(self, bars: Progress, event: Event) -> None:
        if event.kind == "started" and event.key not in self.lines:
            self.lines[event.key] = bars.add_task(escape(self.names.get(event.key, event.key)), total=None)
        if event.kind == "row" and event.key in self.lines:
            text = f"{self.names.get(event.key, event.key)}: {describe(event.row)}"
            bars.update(self.lines[event.key], description=escape(text), advance=1)
        if event.kind in (*ENDS, "retried") and event.key in self.lines:
            bars.remove_task(self.lines.pop(event.key))
        failed = f", {self.failed} failed" if self.failed else ""
        bars.update(self.overall, completed=self.ended, description=f"all runs{failed}")


def labels(runs: Sequence[Run]) -> list[str]:
    """Return for each run what tells it from the others.

    Example:
        >>> labels([Run(methods="fire"), Run(methods="none")])
        ['methods=fire', 'methods=none']
    """
    fields = [run.to_dict() for run in runs]
    varied = [name for name in (fields[0] if fields else {}) if any(f[name] != fields[0][name] for f in fields)]
    return [" ".join(f"{name}={f[name]}" for name in varied or ["methods", "seed"]) for f in fields]


def describe(row: Row) -> str:
    """Return what a person wants to know of a row.

    Example:
        >>> describe({"key": "a1", "stage": 1, "epoch": 20, "accuracy": 0.91234})
        'stage 1, epoch 20, accuracy 0.9123'
    """
    shown = [(name, row[name]) for name in SHOWN if row.get(name) is not None]
    return ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in shown)
