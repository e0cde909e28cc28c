"""A folder of runs as a page: who is best and whether that is sure, the course of training, cost, settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rekindle.lab.report.after_boundary import after_boundary
from rekindle.lab.report.boundary_charts import boundaries, sfe_against_dfi
from rekindle.lab.report.cost import cost
from rekindle.lab.report.curves import over_stages, trajectories
from rekindle.lab.report.load_runs import LoadedRuns, RunGroup, RunOutcome, read_runs
from rekindle.lab.report.summary import scale_of, summarize
from rekindle.lab.runs.store import versions
from rekindle.pages.page import Chart, Rows, Section, Text, write_page
from rekindle.statistics.intervals import spread
from rekindle.statistics.paired_tests import last_rows

Content = list[Text | Rows | Chart]
CONSEQUENTIAL = ("rekindle", "torch", "numpy")  # other versions of these may give other numbers


def write_runs_page(
    runs: str | Path | LoadedRuns, path: str | Path, *, baseline: str = "none", measure: str | None = None
) -> Path:
    """Write the page of a folder of runs.

    Args:
        runs: The folder, as `rekindle sweep` writes it, or what `gather` read of one.
        path: The file to write.
        baseline: Method that the others are compared with; a folder has to say if it is gathered already.
        measure: Column of the rows that is compared, at the end of each run; likewise.

    Raises:
        RekindleError: There is nothing to show, or the file cannot be written.
    """
    found = runs if isinstance(runs, LoadedRuns) else read_runs(runs, baseline=baseline, measure=measure)
    made = versions()
    footer = (
        f"rekindle {made['rekindle']} report, Python {made['python']}. Runs differ in method and seed within a group."
    )
    return write_page(path, f"Runs in {found.name}", sections_of(found), footer=footer)


def sections_of(found: LoadedRuns) -> list[Section]:
    """Return the parts of the page; those without content are left out."""
    sections = [Section("Overview", list(_overview(found)))]
    for group in found.groups:
        sections += _of_group(group)
    failed = [outcome for outcome in found.outcomes if outcome.state == "failed"]
    if failed:
        sections.append(Section("Failed runs", [_failures(failed)]))
    sections.append(Section("Settings", _settings(found.outcomes)))
    sections.append(Section("Runs", [_runs(found)]))
    sections.append(Section("Versions", _versions(found.outcomes)))
    return sections


def _of_group(group: RunGroup) -> list[Section]:
    measure = group.results.metric
    usual = "loss" if group.is_text else "accuracy"
    curve = usual if measure.startswith("metric.") else measure
    later = [curve, "loss_first", "loss_second"] if group.is_text else []
    parts: dict[str, Content] = {
        f"Results: {group.title}": list(summarize(group)),
        "From the boundary on": [chart for column in later for chart in after_boundary(group, column)],
        "The course of training": list(over_stages(group, curve)),
        "At the boundaries": [*boundaries(group, curve), *sfe_against_dfi(group)],
        "Metrics": list(trajectories(group, curve)),
        "Cost": list(cost(group)),
    }
    return [Section(f"{group.number}{title}", content) for title, content in parts.items() if content]


def _overview(found: LoadedRuns) -> Iterator[Text | Rows]:
    counts = {state: sum(o.state == state for o in found.outcomes) for state in ("finished", "failed", "open")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    groups = f"{len(found.groups)} settings" if len(found.groups) > 1 else "one setting"
    yield Text(f"{len(found.outcomes)} runs: {told}. {groups[0].upper()}{groups[1:]}; methods: {_methods(found)}.")
    if counts["failed"]:
        yield Text(f"Failed, and in no number below: {counts['failed']}. See the section on them.", "bad")
    if counts["open"]:
        yield Text(f"Not finished yet, and in no number below: {counts['open']}.", "warning")
    for note in found.notes:
        yield Text(f"Left out: {note}.", "warning")
    if found.baseline is None:
        yield Text("Without a baseline: no run has the method none. Name one with --baseline.", "warning")
    if len(found.groups) > 1:
        yield _winners(found)


def _methods(found: LoadedRuns) -> str:
    return ", ".join(found.results.methods)


def _winners(found: LoadedRuns) -> Rows:
    scale, name = scale_of(found.results.metric)
    rows = []
    for number, group in enumerate(found.groups, 1):
        best = spread(group.finals(group.methods[0]))
        rows.append([number, group.title, group.methods[0], scale * best.mean, best.n])
    words = (
        "The best mean of each setting; whether it is significant stands in the setting's own section. "
        "What is the same in all settings is in the section Settings alone."
    )
    return Rows(("number", "setting", "best", name, "seeds"), rows, caption=words)


def _failures(failed: Sequence[RunOutcome]) -> Rows:
    rows = [[o.key, _what(o.run), o.run.get("methods"), o.run.get("seed"), o.reason] for o in failed]
    words = "The whole traceback is in failed.json in the run's folder."
    return Rows(("run", "setting", "methods", "seed", "error"), rows, caption=words)


def _what(run: Mapping[str, Any]) -> str:
    return ", ".join(str(run.get(name, "?")) for name in ("protocol", "data", "model"))


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)


def _values(outcomes: Sequence[RunOutcome]) -> dict[str, list[str]]:
    """Return the values that each field has, in order; numbers within text count as numbers."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.run)
    return {name: sorted({_shown(o.run.get(name)) for o in outcomes if o.run}, key=_place) for name in names}


def _place(text: str) -> list[tuple[str, float]]:
    """Return what orders text as people do: digits:division=2 before digits:division=10, 1e-3 before 0.02."""
    words = [*re.split(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)", text), "0"]  # a number behind each piece of text
    return [(word, float(number)) for word, number in zip(words[::2], words[1::2], strict=True)]


def _settings(outcomes: Sequence[RunOutcome]) -> Content:
    rows = [[name, " | ".join(values) or "not set", len(values)] for name, values in _values(outcomes).items()]
    return [Rows(("field", "value", "values"), rows, caption="Values of a field that varies are set apart by |.")]


def _runs(found: LoadedRuns) -> Rows:
    varied = [name for name, values in _values(found.outcomes).items() if len(values) > 1]
    rows_of = {row["key"]: row for row in last_rows(row for group in found.groups for row in group.rows)}
    measure = found.results.metric
    rows = []
    for outcome in found.outcomes:
        last = rows_of.get(outcome.key, {})
        cells = [_plain(outcome.run.get(name)) for name in varied]
        made = [outcome.versions.get(name, "?") for name in CONSEQUENTIAL[:2]]
        rows.append([outcome.key, *cells, outcome.state, last.get(measure), last.get("seconds"), *made])
    return Rows(("run", *varied, "state", measure, "seconds", *CONSEQUENTIAL[:2]), rows)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else _shown(value)


def _versions(outcomes: Sequence[RunOutcome]) -> Content:
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.versions)
    rows, mixed = [], []
    for name in names:
        values = [outcome.versions.get(name, "not installed") for outcome in outcomes if outcome.versions]
        kinds = list(dict.fromkeys(values))
        mixed += [name] if len(kinds) > 1 and name in CONSEQUENTIAL else []
        counted = [f"{kind} ({values.count(kind)} runs)" for kind in kinds] if len(kinds) > 1 else kinds
        rows.append([name, ", ".join(counted)])
    words = f"Not all runs were made with the same {', '.join(mixed)}: their numbers may differ for that reason alone."
    return [*([Text(words, "warning")] if mixed else []), Rows(("what", "version"), rows)]
