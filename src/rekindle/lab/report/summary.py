"""Who stands where in a group: the summary table, the best against the others, and in words what it means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rekindle.lab.report.load_runs import RunGroup
from rekindle.pages.page import Rows, Text
from rekindle.statistics.intervals import mean_interval, spread
from rekindle.statistics.paired_tests import PairedTest, compare_all
from rekindle.statistics.significance import holm, seeds_needed, sign_test

LEVEL = 0.05


def summarize(group: RunGroup) -> Iterator[Text | Rows]:
    """Yield the words, the summary table and the tests of a group."""
    against_all = compare_all(group.results)
    ours = [_from(group.methods[0], one) for one in against_all if group.methods[0] in (one.better, one.worse)]
    yield from (Text(words, mark) for words, mark in verdict(group, ours, len(against_all)))
    yield summary(group)
    if ours:
        yield _tests(group, ours, len(against_all))


def scale_of(measure: str) -> tuple[float, str]:
    """Return by what a measure is multiplied to be read, and its name with the unit.

    Example:
        >>> scale_of("accuracy"), scale_of("loss")
        ((100.0, 'accuracy (%)'), (1.0, 'loss'))
    """
    return (100.0, f"{measure} (%)") if measure.startswith("accuracy") else (1.0, measure)


def summary(group: RunGroup) -> Rows:
    """Return methods by their final numbers, best first, the best in bold."""
    scale, name = scale_of(group.results.metric)
    columns = ["method", name, "deviation", "seeds", "95% from", "to"]
    against = {}
    if group.baseline is not None:
        against = {one.better: one for one in compare_all(group.results, baseline=group.baseline)}
        columns += [f"minus {group.baseline}", "from", "to", "better in", "p", "p (Holm)"]
    rows = []
    for method in group.methods:
        finals = group.finals(method)
        found, interval = spread(finals), mean_interval(finals)
        row = [method, scale * found.mean, _given(scale * found.deviation), found.n, *_ends(interval, scale)]
        rows.append(row + (_against(against.get(method), scale) if group.baseline is not None else []))
    best = frozenset((n, c) for n, row in enumerate(rows) for c in (0, 1) if row[1] == rows[0][1])
    return Rows(columns, rows, best, _caption(group))


def _caption(group: RunGroup) -> str:
    words = "Best mean in bold; deviation over seeds (n - 1); 95% intervals are Student's."
    if group.baseline is None:
        return words
    return (
        f"{words} Differences are paired by seed. p: exact sign test, one-sided, for being better than "
        f"{group.baseline}; (Holm): corrected for all methods of this table."
    )


def _against(one: PairedTest | None, scale: float) -> list[Any]:
    if one is None:
        return [None] * 6
    return [scale * one.difference, *_ends(one.interval, scale), f"{one.wins} of {one.pairs}", one.p, one.p_holm]


def _ends(interval: tuple[float, float], scale: float) -> list[float | None]:
    return [_given(scale * end) for end in interval]


def _given(value: float) -> float | None:
    """Return a number that can be shown: not the deviation of a single run, nor the ends of its interval."""
    return value if math.isfinite(value) else None


def _from(best: str, one: PairedTest) -> PairedTest:
    """Return a comparison as seen from the best method."""
    if one.better == best:
        return one
    low, high = one.interval
    losses = one.pairs - one.wins - one.ties
    turned = {"wins": losses, "difference": -one.difference, "interval": (-high, -low)}
    return replace(one, better=best, worse=one.better, **turned)  # type: ignore[arg-type]


def _tests(group: RunGroup, ours: Sequence[PairedTest], family: int) -> Rows:
    scale, name = scale_of(group.results.metric)
    best = group.methods[0]
    columns = (f"{best} against", f"difference, {name}", "from", "to", "better in", "p", "p (Holm)", "significant")
    rows = []
    for one in sorted(ours, key=lambda one: group.methods.index(one.worse)):
        rows.append([one.worse, *_against(one, scale), "yes" if _is_clear(one) else "no"])
    words = f"Paired by seed. Exact sign test, two-sided, Holm's correction for all {family} pairs of methods."
    return Rows(columns, rows, caption=words)


def _is_clear(one: PairedTest) -> bool:
    return one.p_holm < LEVEL and 2 * one.wins > one.pairs - one.ties


def verdict(group: RunGroup, ours: Sequence[PairedTest], family: int) -> Iterator[tuple[str, str]]:
    """Yield sentences and their marks: who is best, against whom that is significant, and whether it could be."""
    best = group.methods[0]
    found = spread(group.finals(best))
    scale, name = scale_of(group.results.metric)
    seeds = _counted(found.n, "seed")
    if len(group.methods) == 1:
        yield f"Only {best} was run: {name} {scale * found.mean:.4g} over {seeds}. Nothing to compare it with.", "plain"
        return
    clear = [one.worse for one in ours if _is_clear(one)]
    unclear = [one.worse for one in ours if not _is_clear(one)]
    words = f"{best} has the best mean of {len(group.methods)} methods: {name} {scale * found.mean:.4g} over {seeds}."
    if clear:
        words += f" It is significantly better than {_listed(clear)} (p < {LEVEL:g} after Holm's correction)."
    yield words, "good" if clear and not unclear else "plain"
    if unclear:
        yield f"It cannot be told apart from {_listed(unclear)} by this test; that does not show them equal.", "plain"
    few = _few_seeds(ours, family)
    if few:
        yield few, "warning"


def _few_seeds(ours: Sequence[PairedTest], family: int) -> str:
    """Say that no result could have been significant, if so."""
    pairs = max((one.pairs for one in ours), default=0)
    if pairs == 0:
        return "No two methods were run with the same seeds: nothing can be paired, so nothing was tested."
    enough = seeds_needed(family, LEVEL, alternative="two-sided")
    if pairs >= enough:
        return ""
    n = f"n = {_counted(pairs, 'paired seed')}, {_counted(family, 'pair')} of methods"
    p = f"p would be {_smallest(pairs, family):.3g} after correction"
    return (
        f"{n}: even if one won with every seed, {p}. So few seeds cannot be significant, however large the difference; "
        f"{enough} could be."
    )


def _smallest(pairs: int, family: int) -> float:
    """Return the smallest p that the test can give, after the correction."""
    p = sign_test([1.0] * pairs, [0.0] * pairs, alternative="two-sided").p
    return holm([p] * family)[0]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
