"""A comparison as a page: the verdict first, then the table, then scores seed by seed and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rekindle.pages.page import Chart, Rows, Section, Text, write_page


def write_comparison_page(found: Any, path: str | Path) -> Path:
    """Write the page of a `rekindle.Comparison`."""
    first = found.trials[0]
    footer = f"rekindle compare. {first.model}, data {first.data}, {first.optimizer}, batches of {first.batch_size}."
    return write_page(path, f"Compared on {first.model.partition(':')[0]}", sections_of(found), footer=footer)


def sections_of(found: Any) -> list[Section]:
    """Return the parts of the page."""
    heads, lines = found.cells()
    sections = [
        Section("Verdict", [Text(found.verdict, "good")]),
        Section("Ways to go on", [Rows(heads, lines, caption=found.caption)]),
        Section("Scores", [_differences(found), _seeds(found)]),
    ]
    if found.failed:
        rows = [[name, reason] for name, reason in found.failed.items()]
        sections.append(Section("Failed", [Rows(("method", "reason"), rows)]))
    if found.notes:
        sections.append(Section("Notes", [Text(note) for note in found.notes]))
    return sections


def _differences(found: Any) -> Chart:
    scale = 100 if found.score == "accuracy" else 1
    data = [
        {"method": o.method, "difference": scale * o.to_none.mean}
        | {"low": scale * o.to_none.low, "high": scale * o.to_none.high}
        for o in found.outcomes
        if o.to_none is not None
    ]
    axis = {"field": "method", "type": "nominal", "sort": None, "title": None}
    ends = {"field": "low", "type": "quantitative", "title": f"{found.score}, difference"}
    spec: dict[str, Any] = {
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": {"y": axis, "x": ends, "x2": {"field": "high"}}},
            {"mark": {"type": "point", "filled": True, "size": 80}, "encoding": {"y": axis, "x": _at("difference")}},
            {"mark": {"type": "rule", "strokeDash": [4, 4]}, "encoding": {"x": {"datum": 0}}},
        ]
    }
    caption = "Paired by seed, with Student's interval; right of the dashed line is better than going on."
    return Chart("Difference to going on untreated", spec, data, caption)


def _seeds(found: Any) -> Chart:
    data = [
        {name: row[name] for name in ("methods", "seed", "event", "score", "seconds")}
        for row in found.rows
        if row["methods"] not in found.failed
    ]
    spec = {
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.7},
        "encoding": {
            "y": {"field": "methods", "type": "nominal", "sort": None, "title": None},
            "x": _at("score") | {"scale": {"zero": False}},
            "color": {"field": "event", "type": "nominal"},
            "tooltip": [{"field": name} for name in ("methods", "seed", "event", "score", "seconds")],
        },
    }
    return Chart("Scores of all seeds", spec, data, "boundary: right after the treatment; end: after the training.")


def _at(field: str) -> dict[str, Any]:
    return {"field": field, "type": "quantitative"}
