"""Methods against each other: rows paired by setting and seed, every pair of methods tested, Holm's correction."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rekindle.statistics.intervals import Interval, StatisticsError, mean_interval
from rekindle.statistics.significance import Alternative, holm, permutation_test, sign_test, wilcoxon_test

# What must be equal for two runs to differ in their method alone.
SETTING = (
    *("protocol", "data", "model", "optimizer", "batch_size", "epochs", "clip", "warmup", "schedule", "patience"),
    *("validation", "precision", "augment", "label_noise", "sample_fraction"),
)
Setting = tuple[str, ...]  # the values, as text, of the fields in which settings differ
Test = Literal["sign", "wilcoxon", "permutation"]
Per = Literal["seed", "setting"]


@dataclass(frozen=True)
class Results:
    """One number for each setting, method and seed.

    Args:
        metric: What was measured.
        fields: Names of the fields in which the settings differ.
        values: Setting -> method -> seed -> number.
        higher_is_better: Which direction is good.
    """

    metric: str
    fields: tuple[str, ...]
    values: Mapping[Setting, Mapping[str, Mapping[int, float]]]
    higher_is_better: bool = True

    @property
    def methods(self) -> list[str]:
        """All methods, in the order in which they came."""
        return list(dict.fromkeys(method for by_method in self.values.values() for method in by_method))

    def of(self, setting: Setting, method: str) -> list[float]:
        """Return the numbers of one cell, by seed."""
        return [value for _, value in sorted(self.values[setting].get(method, {}).items())]

    def goodness(self, value: float) -> float:
        """Return a number of which more is better."""
        return value if self.higher_is_better else -value

    def best(self, setting: Setting) -> str:
        """Return the method with the best mean; the first of equals."""
        means = {method: np.mean(self.of(setting, method)) for method in self.values[setting]}
        return max(means, key=lambda method: self.goodness(float(means[method])))

    def pairs(self, first: str, second: str, per: Per = "seed") -> tuple[list[float], list[float]]:
        """Return the numbers of two methods where both were measured: seed by seed, or means over these seeds."""
        one, two = [], []
        for by_method in self.values.values():
            a, b = by_method.get(first, {}), by_method.get(second, {})
            seeds = sorted(a.keys() & b.keys())
            if seeds and per == "setting":
                one.append(float(np.mean([a[seed] for seed in seeds])))
                two.append(float(np.mean([b[seed] for seed in seeds])))
            elif per == "seed":
                one += [a[seed] for seed in seeds]
                two += [b[seed] for seed in seeds]
        return one, two


def last_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the last row of each run: of its last stage, the last epoch."""
    last: dict[Any, dict[str, Any]] = {}
    for row in rows:
        before = last.get(row["key"])
        if before is None or _when(row) >= _when(before):
            last[row["key"]] = dict(row)
    return list(last.values())


def _when(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get("stage", 0), row.get("epoch", 0)


def collect(
    rows: Iterable[Mapping[str, Any]],
    metric: str = "accuracy",
    *,
    by: str = "methods",
    setting: Sequence[str] = SETTING,
    higher_is_better: bool = True,
) -> Results:
    """Gather the last rows of all runs by setting, method and seed.

    Args:
        rows: As the store gives them.
        metric: Name of the column to compare.
        by: Name of the column that tells the methods apart.
        setting: Columns that must be equal in a pair; `by` is not counted among them.
        higher_is_better: False for losses.

    Raises:
        StatisticsError: No row has the metric, or a cell has two runs of one seed.
    """
    given = [row for row in last_rows(rows) if row.get(metric) is not None]
    if not given:
        raise StatisticsError(
            expected=f"rows with {metric!r}", got="none", fix="name a column of the rows, or finish runs first"
        )
    names = [name for name in setting if name != by]
    varied = tuple(name for name in names if len({_text(row.get(name)) for row in given}) > 1)
    values: dict[Setting, dict[str, dict[int, float]]] = {}
    for row in given:
        cell = values.setdefault(tuple(_text(row.get(name)) for name in varied), {}).setdefault(str(row[by]), {})
        if row["seed"] in cell:
            raise StatisticsError(
                expected=f"one run for each setting, {by} and seed",
                got=f"two of {by}={row[by]}, seed={row['seed']}",
                fix="name the columns in which they differ in `setting`, or give only some of the rows",
            )
        cell[row["seed"]] = float(row[metric])
    return Results(metric, varied, values, higher_is_better)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class PairedTest:
    """Whether one method is better than another, over all pairs.

    Args:
        better: The method that is asked about.
        worse: The one it is compared with.
        pairs: Number of pairs.
        wins: Pairs in which the first was better.
        ties: Pairs in which both were equal.
        difference: Mean of first minus second, in the metric's own direction.
        interval: Student's interval (95%) of that mean, see `mean_interval`.
        p: Chance of this, or more, if both were equally good.
        p_holm: The same after Holm's correction for all comparisons of the family.
    """

    better: str
    worse: str
    pairs: int
    wins: int
    ties: int
    difference: float
    interval: Interval
    p: float
    p_holm: float


def compare_all(
    results: Results,
    *,
    baseline: str | None = None,
    test: Test = "sign",
    per: Per = "seed",
    intervals: bool = True,
) -> list[PairedTest]:
    """Test every two methods (two-sided), or whether each is better than one baseline (one-sided).

    Against a baseline the question is known before the numbers are; between all, the numbers choose who is called
    better, and the p-value pays for that. Settled: L does not say which; its Table 3 on vgg16 fits the two-sided test.

    Args:
        results: As `collect` gives them.
        baseline: Compare with this one only: fewer comparisons, a smaller correction.
        test: The exact binomial (sign) test of L Table 3, Wilcoxon's, or a permutation test.
        per: A pair is one seed of one setting, or one setting (means over seeds, as in L).
        intervals: Whether to give intervals of the differences too.

    Returns:
        One comparison for every two methods that share seeds; the family of Holm's correction is all of them.
    """
    if baseline is not None:
        asked = [(method, baseline) for method in results.methods if method != baseline]
    else:
        asked = [_better_first(results, a, b, per) for a, b in itertools.combinations(results.methods, 2)]
    side: Alternative = "two-sided" if baseline is None else "greater"
    made = [_compare(results, a, b, test, side, per, intervals) for a, b in asked if results.pairs(a, b, per)[0]]
    corrected = holm([comparison.p for comparison in made])
    return [replace(comparison, p_holm=p) for comparison, p in zip(made, corrected, strict=True)]


def _better_first(results: Results, a: str, b: str, per: Per) -> tuple[str, str]:
    """Order two methods: more wins first, then the better mean."""
    first, second = (np.array(values) for values in results.pairs(a, b, per))
    gap = first - second if results.higher_is_better else second - first
    return (a, b) if (np.sign(gap).sum(), gap.sum()) >= (0, 0) else (b, a)


def _compare(results: Results, a: str, b: str, test: Test, side: Alternative, per: Per, intervals: bool) -> PairedTest:
    first, second = (np.array(values) for values in results.pairs(a, b, per))
    gap = first - second
    better = gap if results.higher_is_better else -gap
    p = TESTS[test](better, np.zeros(len(gap)), alternative=side)
    interval = mean_interval(gap) if intervals else (np.nan, np.nan)
    wins, ties = int((better > 0).sum()), int((gap == 0).sum())
    return PairedTest(a, b, len(gap), wins, ties, float(gap.mean()), interval, p, p)


def _sign_p(first: Any, second: Any, *, alternative: Alternative) -> float:
    return sign_test(first, second, alternative=alternative).p


TESTS: dict[str, Callable[..., float]] = {
    "sign": _sign_p,
    "wilcoxon": wilcoxon_test,
    "permutation": permutation_test,
}
