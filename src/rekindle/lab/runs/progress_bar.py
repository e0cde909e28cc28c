"""A bar that tells what remains of a run: stage, epochs and time. Nothing is shown where there is no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """Counts epochs over all stages.

    Args:
        wanted: Whether to show it at all.
        names: Of the stages.
        epochs: Of the stages; one that ends early jumps to its end.
        console: Where to draw; the error output if left out.
    """

    def __init__(
        self, wanted: bool, names: Sequence[str], epochs: Sequence[int], console: Console | None = None
    ) -> None:
        console = console or Console(stderr=True)
        self._names, self._epochs = list(names), list(epochs)
        self.shown = wanted and console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not self.shown)
        self._task = self._progress.add_task("", total=sum(epochs))
        self._newest = ""

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def move(self, stage: int, epoch: int) -> None:
        """Tell that an epoch of a stage, counted from 0, was finished."""
        if self.shown:
            done = sum(self._epochs[:stage]) + epoch
            self._progress.update(self._task, completed=done, description=self._describe(stage, epoch))

    def tell(self, row: dict[str, Any]) -> None:
        """Tell the newest accuracy, or the loss of a model that has none."""
        self._newest = f", accuracy {row['accuracy']:.1%}" if "accuracy" in row else f", loss {row['loss']:.3f}"

    def _describe(self, stage: int, epoch: int) -> str:
        if stage >= len(self._names):
            return f"done{self._newest}"
        place = f"{self._names[stage]} (stage {stage + 1} of {len(self._names)})"
        return f"{place}, epoch {epoch} of {self._epochs[stage]}{self._newest}"
