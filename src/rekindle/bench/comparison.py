"""What came of a comparison: a table, a verdict, and plain rows that a report reads."""

from __future__ import annotations

import statistics as plain
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table

from rekindle.bench.door import FRESH, NONE
from rekindle.bench.paired import Comparison as Test
from rekindle.bench.paired import Results, collect, compare_all
from rekindle.bench.rows import Row
from rekindle.bench.spec import Run
from rekindle.bench.statistics import Spread, bootstrap_interval, needed, spread
from rekindle.bench.store import Store, StoreError
from rekindle.core.show import number, render

LEVEL = 0.05


@dataclass(frozen=True)
class Gap:
    """A mean difference of scores, paired by seed; above zero is better.

    Resampling a handful of seeds gives intervals that are too narrow (of two seeds, half of them miss the truth), so a
    difference is called clear only if a paired t-test at the same level agrees.

    Attributes:
        mean: The mean difference.
        low: Lower end of its bootstrap interval.
        high: Upper end.
        sure: Whether the t-test agrees.
    """

    mean: float
    low: float
    high: float
    sure: bool

    @property
    def better(self) -> bool:
        """Whether it is clearly above zero."""
        return self.sure and self.low > 0

    @property
    def worse(self) -> bool:
        """Whether it is clearly below zero."""
        return self.sure and self.high < 0

    @property
    def promising(self) -> bool:
        """Whether it looks better, though that is not clear."""
        return self.low > 0 and not self.sure


def gap_of(differences: NDArray[np.float64], level: float) -> Gap:
    """Return the gap of paired differences.

    Example:
        >>> gap_of(np.array([1.0, 3.0]), 0.95).better, gap_of(np.array([1.0, 1.1, 1.2, 1.1, 1.0]), 0.95).better
        (False, True)
    """
    mean = float(differences.mean())
    sure = mean != 0 if np.ptp(differences) == 0 else _t_test(differences) < 1 - level
    return Gap(mean, *bootstrap_interval(differences, level=level), sure)


def _t_test(differences: NDArray[np.float64]) -> float:
    return float(needed("scipy.stats").ttest_1samp(differences, 0).pvalue)


@dataclass(frozen=True)
class Outcome:
    """What came of one way to go on.

    Attributes:
        method: Its name; "none" for going on untreated, "fresh" for a fresh start.
        score: Number, mean and deviation over seeds at the end.
        to_none: Difference to going on untreated; None for that itself.
        to_fresh: Difference to the fresh start; None for that itself, and where it failed.
        p: Of the exact sign test that it is better than going on (one-sided); None for that itself.
        p_holm: The same after Holm's correction for all ways.
        after: Mean score right after the treatment, before the training.
        seconds: Median time of treatment and training.
        cost: The same, relative to going on.
    """

    method: str
    score: Spread
    to_none: Gap | None
    to_fresh: Gap | None
    p: float | None
    p_holm: float | None
    after: float
    seconds: float
    cost: float


@dataclass(frozen=True)
class Comparison:
    """Several ways to go on from one checkpoint. It prints as a table with the verdict below.

    Attributes:
        rows: Plain data as of `rekindle run`: for each way and seed one row after the treatment (`event` "boundary")
            and one at the end ("end").
        runs: What was run.
        score: What the score is: "accuracy", "minus loss" or "metric". More is better.
        failed: Ways that failed, with the reason; they are not judged.
        notes: What else the user should know.
    """

    rows: tuple[Row, ...]
    runs: tuple[Run, ...]
    score: str
    failed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def results(self) -> Results:
        """The scores at the end, by way and seed."""
        return collect([row for row in self.rows if row["methods"] not in self.failed], "score")

    @property
    def level(self) -> float:
        """Level of each interval: all differences to going on hold together at 95% (Bonferroni)."""
        return 1 - LEVEL / max(1, len(self.results.methods) - 1)

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What came of each way that did not fail; going on first, the fresh start last."""
        tests = {c.better: c for c in compare_all(self.results, baseline=NONE, intervals=False)}
        return tuple(self._outcome(name, tests.get(name)) for name in self.results.methods)

    def _outcome(self, name: str, test: Test | None) -> Outcome:
        seconds, usual = (plain.median(self._of(way, "end", "seconds")) for way in (name, NONE))
        return Outcome(
            method=name,
            score=spread(self._of(name, "end", "score")),
            to_none=self.gap(name, NONE),
            to_fresh=self.gap(name, FRESH),
            p=test.p if test else None,
            p_holm=test.p_holm if test else None,
            after=plain.fmean(self._of(name, "boundary", "score")),
            seconds=seconds,
            cost=seconds / usual,
        )

    def gap(self, method: str, other: str) -> Gap | None:
        """Return the difference of two ways; None if they are one, or one of them failed."""
        if method == other or not {method, other} <= {*self.results.methods}:
            return None
        first, second = self.results.pairs(method, other)
        return gap_of(np.array(first) - np.array(second), self.level)

    def _of(self, method: str, event: str, column: str) -> list[float]:
        return [row[column] for row in self.rows if row["methods"] == method and row["event"] == event]

    @property
    def verdict(self) -> str:
        """Whether to go on, treat or start afresh, and what it costs: one or two sentences."""
        from rekindle.bench.verdict import verdict

        return verdict(self)

    def save(self, folder: str | Path) -> Path:
        """Write the rows into a folder of runs, as `rekindle report` reads it; runs of the same name are replaced.

        Raises:
            StoreError: Another process writes there now.
        """
        store = Store(folder)
        for run in self.runs:
            claim = store.claim(run)
            if claim is None:
                raise StoreError(
                    expected=f"a folder of runs that nobody else writes to: {store.path(run.key)}",
                    got="one that another process works on",
                    fix="name another folder, or wait until it is done",
                )
            rows = [row for row in self.rows if row["key"] == run.key]
            if rows:
                store.finish(claim, run, rows)
            else:
                store.fail(claim, run, self.failed[run.methods])
        return store.folder

    def shown(self, value: float, sign: str = "") -> str:
        """Return a score, or a difference with its sign; accuracies in per cent."""
        return f"{100 * value:{sign}.1f}" if self.score == "accuracy" else f"{value:{sign}.3g}"

    def shown_gap(self, gap: Gap | None) -> str:
        """Return a difference with its interval."""
        if gap is None:
            return ""
        return f"{self.shown(gap.mean, '+')} [{self.shown(gap.low)}, {self.shown(gap.high)}]"

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the lines of the table, as text."""
        unit = "accuracy (%)" if self.score == "accuracy" else self.score
        heads = ["method", unit, "deviation", "to going on", "to fresh", "p", "p (Holm)", "after treatment"]
        return [*heads, "seconds", "cost"], [self._line(outcome) for outcome in self.outcomes]

    def _line(self, outcome: Outcome) -> list[str]:
        numbers = [self.shown(outcome.score.mean), self.shown(outcome.score.deviation)]
        gaps = [self.shown_gap(outcome.to_none), self.shown_gap(outcome.to_fresh)]
        ps = [number(outcome.p), number(outcome.p_holm)]
        cost = [self.shown(outcome.after), f"{outcome.seconds:.3g}", f"{outcome.cost:.2f}x"]
        return [outcome.method, *numbers, *gaps, *ps, *cost]

    @property
    def caption(self) -> str:
        """How to read the table."""
        seeds, steps = len({run.seed for run in self.runs}), self.runs[0].protocol.partition("steps=")[2]
        return (
            f"{seeds} seeds of {steps} steps from one checkpoint. Differences are paired by seed; their bootstrap "
            f"intervals of {100 * self.level:.4g}% hold together at 95%, and what is called clear passes a paired "
            "t-test at that level too. p: exact sign test, one-sided."
        )

    def __str__(self) -> str:
        heads, lines = self.cells()
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for place, head in enumerate(heads):
            table.add_column(head, justify="right" if place else "left", no_wrap=True)
        for line in lines:
            table.add_row(*line)
        width = 40 + sum(max(map(len, column)) + 2 for column in zip(heads, *lines, strict=True))
        failed = [f"failed: {name}: {reason}" for name, reason in self.failed.items()]
        return "\n".join([render(table, width), self.caption, *failed, *self.notes, self.verdict])

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        plain_data: dict[str, Any] = {"verdict": self.verdict, "score": self.score, "rows": list(self.rows)}
        return {**plain_data, "failed": dict(self.failed), "notes": list(self.notes)}
