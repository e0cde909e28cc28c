"""A folder of runs as the report needs it: rows in groups of one setting, and what became of every run."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.errors import RekindleError
from rekindle.lab.runs.rows import Row, TornWarning
from rekindle.lab.runs.store import Store, StoreError
from rekindle.methods.spec import name_of
from rekindle.metrics.registry import list_metrics
from rekindle.statistics.paired_tests import SETTING, Results, collect, last_rows

NAMING = ("protocol", "data", "model")
# Fields that change no weight, or that other runs may differ in; they tell runs apart only if nothing else does.
ALSO = ("metrics", "metrics_each", "evaluate_each", "threads", "device")


class ReportError(RekindleError):
    """There is nothing that could be shown."""


@dataclass(frozen=True)
class RunGroup:
    """All runs of one setting, which differ in method and seed alone.

    Args:
        title: Protocol, data, model, and whatever else tells it from the other groups; their settings whole if there is
            one only, and otherwise those that are not the same in all.
        number: "2. " in front of its headings, or nothing if it is the only one.
        rows: All rows.
        results: The final number of each method and seed.
        baseline: What the others are compared with; None if it was not run here.
        everywhere: The methods of all groups, so that each has its own color on the whole page.
    """

    title: str
    number: str
    rows: Sequence[Row]
    results: Results
    baseline: str | None
    everywhere: Sequence[str]

    @property
    def is_text(self) -> bool:
        """Whether the runs are on text, whose rows have a loss and no accuracy."""
        return not any("accuracy" in row for row in self.rows)

    @property
    def unit(self) -> str:
        """What time is counted in: on text an epoch is only the time between two evaluations."""
        return "step" if self.is_text else "epoch"

    @property
    def methods(self) -> list[str]:
        """Methods, best mean first."""
        [setting] = self.results.values
        means = {m: sum(v) / len(v) for m in self.results.methods if (v := self.results.of(setting, m))}
        return sorted(means, key=lambda method: -self.results.goodness(means[method]))

    def finals(self, method: str) -> list[float]:
        """Return the final numbers of a method, by seed."""
        [setting] = self.results.values
        return self.results.of(setting, method)


@dataclass(frozen=True)
class RunOutcome:
    """What became of one run: its fields, versions and state, and how it failed."""

    key: str
    run: Mapping[str, Any]
    versions: Mapping[str, str]
    state: str
    reason: str = ""


@dataclass(frozen=True)
class LoadedRuns:
    """A folder of runs.

    Args:
        name: Of the folder.
        groups: One for each setting.
        results: The final numbers of all settings.
        outcomes: What became of each run.
        notes: What had to be left out, and why.
        baseline: What the others are compared with; None if it was never run.
    """

    name: str
    groups: Sequence[RunGroup]
    results: Results
    outcomes: Sequence[RunOutcome]
    notes: Sequence[str]
    baseline: str | None


def read_runs(folder: str | Path, *, measure: str | None = None, baseline: str = "none") -> LoadedRuns:
    """Read a folder of runs.

    Args:
        folder: As `rekindle sweep` writes it.
        measure: Column of the rows that is compared, at the end of each run; accuracy if left out, or the loss where
            no run has an accuracy.
        baseline: Method that the others are compared with.

    Raises:
        RekindleError: There is no finished run, or none with such a measure or baseline.
    """
    store = _opened(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TornWarning)
        outcomes = [_outcome(store, key) for key in store.keys()]
        known = [outcome for outcome in outcomes if outcome.state == "finished" and _is_told(outcome.run)]
        rows = [row for outcome in known for row in store.rows(outcome.key)]
    notes = list(dict.fromkeys(str(one.message) for one in caught))
    notes += [f"{o.key}: run.json is broken; left out" for o in outcomes if not _is_told(o.run)]
    if not rows:
        raise _nothing_finished(store, outcomes)
    rows = _in_order(_without_seed_in_data(rows))
    measure = measure or ("accuracy" if any("accuracy" in row for row in rows) else "loss")
    last, left_out = _with_measure(rows, measure)
    fields = _telling_apart(last)
    results = collect(last, measure, setting=fields, higher_is_better=is_higher_better(measure))
    found = _baseline(results, baseline)
    groups = list(_groups(rows, last, fields, results, found))
    return LoadedRuns(store.folder.name, groups, results, outcomes, [*notes, *left_out], found)


def _opened(folder: str | Path) -> Store:
    store = Store(folder)
    if not store.folder.is_dir() or not store.keys():
        what = "holds no run" if store.folder.is_dir() else "is a file" if store.folder.exists() else "does not exist"
        raise StoreError(
            expected="a folder of runs, as `rekindle sweep` writes it",
            got=f"{store.folder}, which {what}",
            fix="give the folder that the sweep named at its end",
        )
    return store


def _outcome(store: Store, key: str) -> RunOutcome:
    told = store.read_run(key)
    state = store.state(key)
    reason = last_words(store.failure(key)) if state == "failed" else ""
    return RunOutcome(key, told.get("run") or {}, told.get("versions") or {}, state, reason)


def last_words(traceback: str) -> str:
    r"""Return what stands in a traceback behind its last frame: the error and its message.

    Example:
        >>> last_words("Traceback (most recent call last):\n  File x\n    f()\nValueError: no")
        'ValueError: no'
    """
    lines = traceback.rstrip().splitlines()
    frames = [n for n, line in enumerate(lines) if line.startswith(" ")]
    return " ".join(lines[(frames[-1] + 1 if frames else 0) :])


def _is_told(run: Mapping[str, Any]) -> bool:
    return "methods" in run and "seed" in run


def _nothing_finished(store: Store, outcomes: Sequence[RunOutcome]) -> ReportError:
    failed = [outcome.reason for outcome in outcomes if outcome.state == "failed"]
    why = f"; the first failed with: {failed[0]}" if failed else ""
    return ReportError(
        expected=f"at least one finished run with rows in {store.folder}",
        got=f"{len(outcomes)} runs, {len(failed)} of them failed, the others open or broken{why}",
        fix="finish the sweep first; `rekindle sweep ... --retry` runs again what failed",
    )


def _without_seed_in_data(rows: Sequence[Row]) -> list[Row]:
    """Take out of `data` what follows the seed (a split of its own for each): it is no setting."""
    by_seed: dict[int, set[str]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], set()).add(str(row.get("data")))
    specs = {spec for found in by_seed.values() for spec in found}
    names = {name_of(spec) for spec in specs}
    follows = len(specs) == len(by_seed) > 1 and len(names) == 1 and all(len(found) == 1 for found in by_seed.values())
    return [{**row, "data": f"{next(iter(names))}, divided by seed"} for row in rows] if follows else [*rows]


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Sort by setting, method and seed, untreated and fresh first; keys are hashes, their order means nothing."""

    def place(row: Row) -> tuple[str, bool, bool, str, int]:
        method = str(row["methods"])
        setting = json.dumps([row.get(name) for name in SETTING])
        return setting, method != "none", method != "fresh", method, row["seed"]

    return sorted(rows, key=place)


def _with_measure(rows: Sequence[Row], measure: str) -> tuple[list[Row], list[str]]:
    """Return the last rows that have the measure, and which have not."""
    last = last_rows(rows)
    given = [row for row in last if _is_number(row.get(measure))]
    if not given:
        columns = sorted({name for row in last for name, value in row.items() if _is_number(value)})
        raise ReportError(
            expected=f"a column with numbers in the last rows of runs, such as {', '.join(columns)}",
            got=f"measure {measure!r}",
            fix="name one of these with --measure",
        )
    lacking = [row["key"] for row in last if not _is_number(row.get(measure))]
    return given, [f"{key}: its last row has no finite {measure}; not in the comparison" for key in lacking]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _telling_apart(last: Sequence[Row]) -> tuple[str, ...]:
    """Return the fields of a setting: more of them if two runs would be one otherwise."""
    cells = [json.dumps([row.get(name) for name in (*SETTING, "methods", "seed")]) for row in last]
    return SETTING if len(set(cells)) == len(cells) else (*SETTING, *ALSO)


def is_higher_better(measure: str) -> bool:
    """Return the good direction of a column.

    Example:
        >>> is_higher_better("accuracy"), is_higher_better("loss"), is_higher_better("metric.dormant")
        (True, False, False)
    """
    directions = {f"metric.{card.key}": card.direction for card in list_metrics()}
    return not ("loss" in measure or "seconds" in measure or directions.get(measure) == "lower")


def _baseline(results: Results, baseline: str) -> str | None:
    if baseline in results.methods:
        return baseline
    if baseline == "none":  # asked for by nobody
        return None
    raise ReportError(
        expected=f"a baseline among the methods: {', '.join(results.methods)}",
        got=repr(baseline),
        fix="name one of these with --baseline",
    )


def _groups(
    rows: Sequence[Row], last: Sequence[Row], fields: Sequence[str], results: Results, baseline: str | None
) -> Iterator[RunGroup]:
    """Yield a group for each setting that has final numbers."""
    varied = [name for name in fields if len({json.dumps(row.get(name)) for row in last}) > 1]

    everything, finals = _by_setting(rows, fields), _by_setting(last, fields)
    short = {name: _without_the_same({str(row.get(name, "?")) for row in last}) for name in NAMING}
    for number, (here, ends) in enumerate(finals.items(), 1):
        found = collect(ends, results.metric, setting=(), higher_is_better=results.higher_is_better)
        other = [f"{name} {ends[0].get(name)}" for name in varied if name not in NAMING]
        title = ", ".join([*(short[name][str(ends[0].get(name, "?"))] for name in NAMING), *other])
        own = [row for row in everything[here] if row["methods"] in found.methods]
        known = baseline if baseline in found.methods else None
        yield RunGroup(title, f"{number}. " if len(finals) > 1 else "", own, found, known, results.methods)


def _without_the_same(specs: set[str]) -> dict[str, str]:
    """Return each of several spec strings of one name without the settings that all of them have.

    Example:
        >>> sorted(_without_the_same({"warm_start:before=2,after=3", "warm_start:before=2,after=4"}).values())
        ['warm_start:after=3', 'warm_start:after=4']
    """
    parts = {spec: spec.partition(":")[::2] for spec in specs}
    if len(specs) < 2 or len({name for name, _ in parts.values()}) > 1:
        return {spec: spec for spec in specs}
    everywhere = set.intersection(*(set(text.split(",")) for _, text in parts.values()))
    own = {spec: ",".join(one for one in text.split(",") if one not in everywhere) for spec, (_, text) in parts.items()}
    return {spec: f"{parts[spec][0]}:{own[spec]}" if own[spec] else parts[spec][0] for spec in specs}


def _by_setting(rows: Sequence[Row], fields: Sequence[str]) -> dict[str, list[Row]]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(json.dumps([row.get(name) for name in fields]), []).append(row)
    return parts
