"""What came of a comparison: a table, a verdict, and plain rows that a report reads."""

from __future__ import annotations

import statistics as plain
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from rekindle._renamed import refuse_old_name
from rekindle.comparison.outcomes import Gap, Outcome, gap_of, shown, shown_gap
from rekindle.comparison.trial import Row, Trial
from rekindle.comparison.verdict import verdict
from rekindle.methods.spec import FRESH, UNTREATED
from rekindle.statistics.intervals import spread
from rekindle.statistics.paired_tests import PairedTest, Results, collect, compare_all
from rekindle.text import number, render

LEVEL = 0.05


@dataclass(frozen=True)
class Comparison:
    """Several ways to go on from one checkpoint. It prints as a table with the verdict below.

    Attributes:
        rows: Plain data as of `rekindle run`: for each way and seed one row after the treatment (`event` "boundary")
            and one at the end ("end").
        trials: What was trained: every way with every seed, those that failed among them.
        score: What the score is: "accuracy", "minus loss" or "metric". More is better.
        failed: Ways that failed, with the reason; they are not judged.
        notes: What else the user should know.
    """

    rows: tuple[Row, ...]
    trials: tuple[Trial, ...]
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
        tests = {c.better: c for c in compare_all(self.results, baseline=UNTREATED, intervals=False)}
        return tuple(self._outcome(name, tests.get(name)) for name in self.results.methods)

    def _outcome(self, name: str, test: PairedTest | None) -> Outcome:
        seconds, usual = (plain.median(self._of(way, "end", "seconds")) for way in (name, UNTREATED))
        return Outcome(
            method=name,
            score=spread(self._of(name, "end", "score")),
            to_none=self.gap(name, UNTREATED),
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
        return verdict(self.outcomes, self.score, self.gap)

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the lines of the table, as text."""
        unit = "accuracy (%)" if self.score == "accuracy" else self.score
        heads = ["method", unit, "deviation", "to going on", "to fresh", "p", "p (Holm)", "after treatment"]
        return [*heads, "seconds", "cost"], [self._line(outcome) for outcome in self.outcomes]

    def _line(self, outcome: Outcome) -> list[str]:
        numbers = [shown(outcome.score.mean, self.score), shown(outcome.score.deviation, self.score)]
        gaps = [shown_gap(outcome.to_none, self.score), shown_gap(outcome.to_fresh, self.score)]
        ps = [number(outcome.p), number(outcome.p_holm)]
        cost = [shown(outcome.after, self.score), f"{outcome.seconds:.3g}", f"{outcome.cost:.2f}x"]
        return [outcome.method, *numbers, *gaps, *ps, *cost]

    @property
    def caption(self) -> str:
        """How to read the table."""
        seeds, steps = len({trial.seed for trial in self.trials}), self.trials[0].steps
        return (
            f"{seeds} seeds of {steps} steps from one checkpoint. Differences are paired by seed; their "
            f"intervals of {100 * self.level:.4g}%, Student's, hold together at 95%, and what is called clear leaves "
            "out zero. p: exact sign test, one-sided."
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

    def __getattr__(self, name: str) -> Any:
        renamed = {"runs": "trials", "save": "rekindle.lab.runs.save_comparison(comparison, folder)"}
        if name in renamed:
            raise refuse_old_name("Comparison", name, renamed[name])
        raise AttributeError(f"'Comparison' object has no attribute {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        plain_data: dict[str, Any] = {"verdict": self.verdict, "score": self.score, "rows": list(self.rows)}
        return {**plain_data, "failed": dict(self.failed), "notes": list(self.notes)}
