"""Rules for verdicts, written down before anything is run.

Numbers: a published mean agrees if it lies in the 95% interval (Student) of the measured mean, or within `k` pooled
deviations of it. Claims: a one-sided exact permutation test of paired differences. "A beats all of B" holds if it holds
against each (an intersection-union test needs no correction); it does not hold if one comparison is significant the
other way after Holm's correction; else it is not decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rekindle.statistics import holm, mean_interval, permutation_test, sign_test, spread

LEVEL = 0.05
AGREES, DIFFERS, UNDECIDED, HOLDS, FAILS = "agrees", "differs", "not decided", "holds", "does not hold"
Row = dict[str, Any]
Observations = Sequence[Mapping[str, Any]]
PublishedNumbers = Mapping[tuple[str, str], Any]  # condition and method -> what was printed
BySeed = dict[tuple[str, int], float]  # condition and seed -> number


class Rule(Protocol):
    """Turns observations into findings: rows with a verdict."""

    def judge(self, observations: Observations, published: PublishedNumbers) -> list[Row]:
        """Return the findings."""


@dataclass(frozen=True)
class Numbers:
    """Every published number against the measured one.

    Args:
        measure: Which number.
        k: Pooled deviations within which they agree.
    """

    measure: str = "accuracy"
    k: float = 1.0

    def judge(self, observations: Observations, published: PublishedNumbers) -> list[Row]:
        """Return a finding for each cell that was measured or published; what was not published has no verdict."""
        cells = dict.fromkeys([*published, *((str(one["condition"]), str(one["method"])) for one in observations)])
        return [
            self._one(cell, pick(observations, cell[1], self.measure, [cell[0]]), published.get(cell)) for cell in cells
        ]

    def _one(self, cell: tuple[str, str], numbers: BySeed, printed: Any) -> Row:
        row: Row = {"kind": "number", "condition": cell[0], "method": cell[1], "measure": self.measure}
        if printed is not None:
            row |= {"published": printed.mean, "published_deviation": printed.deviation, "published_n": printed.n}
        if not numbers:
            return {**row, "n": 0, "verdict": UNDECIDED}
        found, (low, high) = spread(list(numbers.values())), mean_interval(list(numbers.values()))
        row |= {"measured": found.mean, "deviation": found.deviation, "n": found.n, "low": low, "high": high}
        return {**row, "verdict": "" if printed is None else self._verdict(row, printed.mean, printed.deviation)}

    def _verdict(self, row: Row, mean: float, deviation: float | None) -> str:
        if row["n"] < 2:
            return UNDECIDED
        other = row["deviation"] if deviation is None else deviation
        pooled = math.sqrt((row["deviation"] ** 2 + other**2) / 2)
        within = row["low"] <= mean <= row["high"] or abs(row["measured"] - mean) <= self.k * pooled
        return AGREES if within else DIFFERS


@dataclass(frozen=True)
class Larger:
    """One method has larger numbers than each of some others, paired by condition and seed.

    Args:
        claim: In words.
        method: Whose numbers are larger.
        than: Than those of each of these.
        measure: Which number.
        conditions: In which conditions; in all if left out.
        flip: Whether the numbers must be smaller instead.
        by_condition: Whether a pair is a condition (means over seeds), tested by the exact binomial test, as in L
            Table 3.
    """

    claim: str
    method: str
    than: tuple[str, ...]
    measure: str = "accuracy"
    conditions: tuple[str, ...] | None = None
    flip: bool = False
    by_condition: bool = False

    def judge(self, observations: Observations, published: PublishedNumbers) -> list[Row]:
        """Return a finding for each comparison, and one for the claim."""
        mine = pick(observations, self.method, self.measure, self.conditions)
        rows = [self._one(mine, pick(observations, other, self.measure, self.conditions), other) for other in self.than]
        against = holm([row["p_against"] for row in rows])
        corrected = [{**row, "p_against_holm": p} for row, p in zip(rows, against, strict=True)]
        return [*corrected, {"kind": "claim", "claim": self.claim, "verdict": overall(corrected)}]

    def _one(self, mine: BySeed, other: BySeed, name: str) -> Row:
        first, second = self._paired(mine, other)
        sign = -1.0 if self.flip else 1.0
        gaps = [sign * (a - b) for a, b in zip(first, second, strict=True)]
        p, against = self._p(gaps), self._p([-gap for gap in gaps])
        word = "<" if self.flip else ">"
        row: Row = {"kind": "comparison", "claim": f"{self.method} {word} {name}", "measure": self.measure}
        row |= {"n": len(gaps), "wins": sum(gap > 0 for gap in gaps), "p": p, "p_against": against}
        if gaps:
            found = spread([sign * gap for gap in gaps])
            row |= {"measured": found.mean, "deviation": found.deviation}
        return {**row, "verdict": HOLDS if p < LEVEL else FAILS if against < LEVEL else UNDECIDED}

    def _paired(self, mine: BySeed, other: BySeed) -> tuple[list[float], list[float]]:
        shared = sorted(mine.keys() & other.keys())
        if not self.by_condition:
            return [mine[at] for at in shared], [other[at] for at in shared]
        conditions = dict.fromkeys(condition for condition, _ in shared)
        return (
            [_mean(mine, shared, condition) for condition in conditions],
            [_mean(other, shared, condition) for condition in conditions],
        )

    def _p(self, gaps: Sequence[float]) -> float:
        if not gaps or not any(gaps):
            return 1.0
        zeros = [0.0] * len(gaps)
        return sign_test(gaps, zeros).p if self.by_condition else permutation_test(gaps, zeros)


@dataclass(frozen=True)
class Within:
    """A mean, or the paired difference of two methods, lies between two bounds.

    Args:
        claim: In words.
        method: Whose numbers.
        low: Lower bound.
        high: Upper bound.
        minus: Method whose numbers are subtracted, paired; None for the number itself.
        measure: Which number.
        conditions: In which conditions; in all if left out.
    """

    claim: str
    method: str
    low: float = -math.inf
    high: float = math.inf
    minus: str | None = None
    measure: str = "accuracy"
    conditions: tuple[str, ...] | None = None

    def judge(self, observations: Observations, published: PublishedNumbers) -> list[Row]:
        """Return one finding: it holds if the 95% interval lies inside, and does not if it lies outside."""
        mine = pick(observations, self.method, self.measure, self.conditions)
        if self.minus is not None:
            other = pick(observations, self.minus, self.measure, self.conditions)
            mine = {at: mine[at] - other[at] for at in mine.keys() & other.keys()}
        row: Row = {"kind": "claim", "claim": self.claim, "measure": self.measure, "n": len(mine)}
        if not mine:
            return [{**row, "verdict": UNDECIDED}]
        found, (low, high) = spread(list(mine.values())), mean_interval(list(mine.values()))
        row |= {"measured": found.mean, "deviation": found.deviation, "low": low, "high": high}
        inside = self.low <= low and high <= self.high
        outside = high < self.low or self.high < low
        return [{**row, "verdict": HOLDS if inside else FAILS if outside else UNDECIDED}]


@dataclass(frozen=True)
class Either:
    """At least one of several rules holds.

    Args:
        claim: In words.
        rules: Each of which is enough; none is a `Numbers`.
    """

    claim: str
    rules: tuple[Rule, ...]

    def judge(self, observations: Observations, published: PublishedNumbers) -> list[Row]:
        """Return what each rule found, and one finding for the claim: it does not hold if none of them does."""
        found = [rule.judge(observations, published) for rule in self.rules]
        verdicts = [rows[-1]["verdict"] for rows in found]
        verdict = HOLDS if HOLDS in verdicts else FAILS if set(verdicts) == {FAILS} else UNDECIDED
        parts = [{**row, "kind": "part"} if row["kind"] == "claim" else row for rows in found for row in rows]
        return [*parts, {"kind": "claim", "claim": self.claim, "verdict": verdict}]


def pick(observations: Observations, method: str, measure: str, conditions: Sequence[str] | None = None) -> BySeed:
    """Return the numbers of a method by condition and seed."""
    return dict(_picked(observations, method, measure, conditions))


def _picked(
    observations: Observations, method: str, measure: str, conditions: Sequence[str] | None
) -> Iterator[tuple[tuple[str, int], float]]:
    for one in observations:
        there = conditions is None or one["condition"] in conditions
        if one["method"] == method and there and one.get(measure) is not None:
            yield (str(one["condition"]), int(one["seed"])), float(one[measure])


def overall(rows: Sequence[Row]) -> str:
    """Return the verdict on "beats all": see the head of this file."""
    if rows and all(row["verdict"] == HOLDS for row in rows):
        return HOLDS
    return FAILS if any(row["p_against_holm"] < LEVEL for row in rows) else UNDECIDED


def _mean(numbers: BySeed, shared: Sequence[tuple[str, int]], condition: str) -> float:
    given = [numbers[at] for at in shared if at[0] == condition]
    return sum(given) / len(given)
