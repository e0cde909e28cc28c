"""An audit as a page: findings first, then readings, then charts by layer."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rekindle.metrics.reading import Reading
from rekindle.metrics.registry import list_metrics
from rekindle.pages.page import Chart, Rows, Section, Text, write_page

LINES = 12  # most layers in a chart of lines
POINTS = 200  # most points of a line
CELLS = 64  # most cells of a row in a map of units
MARKS = {"serious": "bad", "warning": "warning", "note": "plain"}


def write_audit_page(audit: Any, path: str | Path) -> Path:
    """Write the page of an `Audit`."""
    made_with = f"torch {torch.__version__}, Python {platform.python_version()}"
    return write_page(path, f"Audit of {audit.subject}", sections_of(audit), footer=f"rekindle audit. {made_with}.")


def sections_of(audit: Any) -> list[Section]:
    """Return the parts of the page; charts only where there is something to draw."""
    readings, fresh = audit.readings, audit.fresh
    sections = [Section("Findings", list(_findings(audit.findings, len(readings))))]
    sections.append(Section("Readings", [_table(readings, fresh)]))
    charts = {
        "Weights": [*_against_fresh("Weight norms", readings, fresh, "weight_norm"), *_isometry(readings, fresh)],
        "Spectra": _spectra(readings),
        "Units": [*_map_of_units(readings), *_map_of_frozen(readings)],
        "Loss": [*_noise(readings), *_probe(readings)],
    }
    sections += [Section(title, found) for title, found in charts.items() if found]
    if audit.skipped:
        rows = [[key, reason] for key, reason in audit.skipped.items()]
        sections.append(Section("Not run", [Rows(("metric", "reason"), rows)]))
    if audit.left_out:
        rows = [[name, reason] for name, reason in audit.left_out.items()]
        sections.append(Section("Left out", [Rows(("tensor", "reason"), rows)]))
    return sections


def _findings(findings: Sequence[Any], metrics: int) -> Iterator[Text | Rows]:
    if not findings:
        yield Text(f"Nothing found by {metrics} metrics.", "good")
    for finding in findings:
        yield Text(f"{finding.severity.capitalize()}: {finding.sentence}.", MARKS[finding.severity])
        yield Text(f"What would help: {finding.advice}. Behind the rule: {finding.source}.")
        concerned = ", ".join(finding.parts[:12]) + (" and more" if len(finding.parts) > 12 else "")
        yield Text(f"Concerned: {concerned}. Threshold: {finding.threshold:g}.")


def _table(readings: Mapping[str, Reading], fresh: Mapping[str, Reading]) -> Rows:
    cards = {card.key: card for card in list_metrics()}
    rows = []
    for key, reading in readings.items():
        usual = fresh[key].summary if key in fresh else None
        rows.append(
            [
                cards[key].title,
                reading.summary,
                usual,
                cards[key].unit,
                cards[key].direction,
                first_sentence(cards[key].what),
            ]
        )
    columns = ("metric", "reading", "fresh network", "unit", "better", "what it is")
    return Rows(columns, rows, caption="What a reading can and cannot tell is in the glossary of the documentation.")


def first_sentence(text: str) -> str:
    """Return a text up to its first full stop.

    Example:
        >>> first_sentence("One, e.g. 1.5 of it. Two.")
        'One, e.g. 1.5 of it.'
    """
    for end in range(len(text)):
        if (
            text[end] == "."
            and text[end + 1 : end + 2] in ("", " ")
            and text[end + 2 : end + 3].isupper() | (end + 1 == len(text))
        ):
            return text[: end + 1]
    return text


def _against_fresh(title: str, readings: Mapping[str, Reading], fresh: Mapping[str, Reading], key: str) -> list[Chart]:
    if key not in readings:
        return []
    sources = {"now": readings[key].parts, "fresh": fresh[key].parts if key in fresh else {}}
    return _bars(title, sources, "Beside the same layers of a fresh network, where it can be drawn.")


def _isometry(readings: Mapping[str, Reading], fresh: Mapping[str, Reading]) -> list[Chart]:
    if "dfi" not in readings:
        return []
    usual = fresh["dfi"].details.get("scale_free", {}) if "dfi" in fresh else {}
    sources = {"now": readings["dfi"].details.get("scale_free", {}), "fresh": usual}
    return _bars("Deviation from isometry, scale divided out", sources, "Zero: all directions are stretched alike.")


def _bars(title: str, sources: Mapping[str, Mapping[str, float]], caption: str) -> list[Chart]:
    data = [
        {"layer": name, "order": order, "value": value, "network": kind}
        for kind, parts in sources.items()
        for order, (name, value) in enumerate(parts.items())
    ]
    layers = max((len(parts) for parts in sources.values()), default=0)
    spec = {
        "mark": {"type": "bar", "tooltip": True},
        "height": 30 + layers * (18 if layers > 20 else 28),
        "encoding": {
            "y": {"field": "layer", "type": "nominal", "sort": {"field": "order"}, "title": None},
            "yOffset": {"field": "network", "sort": ["now", "fresh"]},
            "x": {"field": "value", "type": "quantitative", "title": None},
            "color": {"field": "network", "type": "nominal", "sort": ["now", "fresh"], "title": None},
        },
    }
    return [Chart(title, spec, data, caption)] if data else []


def _spectra(readings: Mapping[str, Reading]) -> list[Chart]:
    values = readings["spectrum"].details.get("singular_values", {}) if "spectrum" in readings else {}
    every = max(1, -(-len(values) // LINES))
    data = []
    for name in list(values)[::every]:
        line = values[name]
        step = max(1, len(line) // POINTS)
        for n in range(0, len(line), step):
            data.append({"layer": name, "share": n / max(len(line) - 1, 1), "value": line[n] / max(line[0], 1e-30)})
    spec = {
        "mark": {"type": "line", "tooltip": True},
        "encoding": {
            "x": {"field": "share", "type": "quantitative", "title": "singular value, largest to smallest"},
            "y": {"field": "value", "type": "quantitative", "title": "over the largest"},
            "color": {"field": "layer", "type": "nominal", "title": None},
        },
    }
    words = "A flat line stretches all directions alike; a line that falls at once uses few of them."
    return [Chart("Singular values", spec, data, words)] if data else []


def _map_of_units(readings: Mapping[str, Reading]) -> list[Chart]:
    scores = readings["dormant"].details.get("scores", {}) if "dormant" in readings else {}
    caption = "A row for each layer, in order of execution; mean |activation| over the layer's mean. Dark: dormant."
    return _map("Activity of units", scores, caption, limit=1.0, reverse=False)


def _map_of_frozen(readings: Mapping[str, Reading]) -> list[Chart]:
    frozen = readings["frozen"].details.get("map", {}) if "frozen" in readings else {}
    caption = "A row for each group of units; 0: free, 1: two neighboring factors near zero, 2: all of them."
    return _map("Frozen units", frozen, caption, limit=2.0, reverse=True)


def _map(title: str, rows: Mapping[str, Any], caption: str, *, limit: float, reverse: bool) -> list[Chart]:
    data = []
    for order, (name, values) in enumerate(rows.items()):
        numbers = [float(value) for value in values]
        cells = min(CELLS, len(numbers))
        for cell in range(cells):
            part = numbers[cell * len(numbers) // cells : (cell + 1) * len(numbers) // cells]
            shown = min(sum(part) / len(part), limit)
            data.append(
                {"layer": name, "order": order, "cell": cell / cells, "end": (cell + 1) / cells, "value": shown}
            )
    scale = {"scheme": "viridis", "domain": [0, limit], "reverse": reverse}
    spec = {
        "mark": {"type": "rect", "tooltip": True},
        "height": 30 + 18 * len(rows),
        "encoding": {
            "y": {"field": "layer", "type": "nominal", "sort": {"field": "order"}, "title": None},
            "x": {"field": "cell", "type": "quantitative", "title": "units", "axis": {"labels": False}},
            "x2": {"field": "end"},
            "color": {"field": "value", "type": "quantitative", "scale": scale, "title": None},
        },
    }
    return [Chart(title, spec, data, caption)] if data else []


def _noise(readings: Mapping[str, Reading]) -> list[Chart]:
    curve = readings["sharpness"].details.get("curve", []) if "sharpness" in readings else []
    data = [{"noise": point[0], "change": point[1]} for point in curve]
    spec = {
        "mark": {"type": "line", "point": True, "tooltip": True},
        "encoding": {
            "x": {"field": "noise", "type": "quantitative", "title": "noise relative to the weights"},
            "y": {"field": "change", "type": "quantitative", "title": "change of the loss"},
        },
    }
    return [Chart("Loss along noise", spec, data, "A steep line: a sharp minimum.")] if data else []


def _probe(readings: Mapping[str, Reading]) -> list[Chart]:
    curves = readings["trainability"].details.get("curves", {}) if "trainability" in readings else {}
    data = [
        {"network": name, "step": step, "loss": value}
        for name, line in curves.items()
        for step, value in enumerate(line)
    ]
    spec = {
        "mark": {"type": "line", "tooltip": True},
        "encoding": {
            "x": {"field": "step", "type": "quantitative"},
            "y": {"field": "loss", "type": "quantitative"},
            "color": {"field": "network", "type": "nominal", "title": None},
        },
    }
    words = "The same short training for a copy of this network and for fresh ones of its class; means over repeats."
    return [Chart("Trainability", spec, data, words)] if data else []
