"""Lines from the last boundary on: what matters when the course before it is the same for all methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rekindle.lab.report.encodings import colors, is_finite, title_of
from rekindle.lab.report.load_runs import RunGroup
from rekindle.pages.page import Chart
from rekindle.statistics.intervals import spread

SETTLED = 0.1  # part of the stage after which the vertical axis shows everything
Record = dict[str, Any]


def after_boundary(group: RunGroup, measure: str) -> Iterator[Chart]:
    """Yield the course of a column in the last stage, by steps, if that stage began with a boundary."""
    last = max((row.get("stage", 0) for row in group.rows), default=0)
    rows = [row for row in group.rows if row.get("stage", 0) == last and is_finite(row.get(measure))]
    data = _means(rows, measure)
    if not any(row.get("event") == "boundary" for row in rows) or len({record["step"] for record in data}) < 3:
        return
    low, high = _range(data)
    words = (
        "Mean over seeds; the band is one deviation to each side. At step 0: right after the treatment, before any "
        "training. The axis is made for what comes after a tenth of the stage; what lies beyond it before is cut off."
    )
    name = next(str(row.get("stage_name", "stage")) for row in rows)
    yield Chart(f"{group.number}{title_of(measure)} from the boundary on", _lines(group, name, low, high), data, words)


def _means(rows: Sequence[Record], measure: str) -> list[Record]:
    places: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        places.setdefault((str(row["methods"]), int(row.get("step", 0))), []).append(float(row[measure]))
    data = []
    for (method, step), values in sorted(places.items()):
        found = spread(values)
        wide = found.deviation if found.n > 1 else 0.0
        ends = {"low": found.mean - wide, "high": found.mean + wide}
        data.append({"method": method, "step": step, "mean": found.mean, **ends, "seeds": found.n})
    return data


def _range(data: Sequence[Record]) -> tuple[float, float]:
    """Return the values between which the settled part of all lines lies, with a little room."""
    end = max(record["step"] for record in data)
    settled = [record for record in data if record["step"] >= SETTLED * end]
    low, high = min(record["low"] for record in settled), max(record["high"] for record in settled)
    room = 0.05 * (high - low)
    return low - room, high + room


def _lines(group: RunGroup, name: str, low: float, high: float) -> dict[str, Any]:
    x = {"field": "step", "type": "quantitative", "title": f"steps of {name}"}
    y = {"field": "mean", "type": "quantitative", "title": None, "scale": {"domain": [low, high], "zero": False}}
    shown = [{"field": field} for field in ("method", "step", "mean", "low", "high", "seeds")]
    band = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colors(group)}
    line = {"x": x, "y": y, "color": colors(group), "tooltip": shown}
    return {
        "height": 300,
        "layer": [
            {"mark": {"type": "area", "opacity": 0.13, "clip": True}, "encoding": band},
            {"mark": {"type": "line", "clip": True}, "encoding": line},
        ],
    }
