"""Lines over all stages of a group of runs, with the boundaries drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rekindle.lab.report.encodings import colors, is_finite, title_of
from rekindle.lab.report.load_runs import RunGroup
from rekindle.lab.runs.rows import Row
from rekindle.pages.page import Chart
from rekindle.statistics.intervals import spread

POINTS = 400  # most points of a line
MARKED = 30  # up to so many points, each has its own mark
ORDER = ("before", "after", "epoch", "end")
Record = dict[str, Any]
PointKey = tuple[str, int, int, str]  # method, stage, epoch or step of the stage, moment


def over_stages(group: RunGroup, measure: str) -> Iterator[Chart]:
    """Yield the course of one column over all stages, with boundaries as rules and the jump at each."""
    start = starts(group.rows, group.unit)
    data = course(group, measure, start)
    if not data:
        return
    title, percent = title_of(measure), measure.startswith("accuracy")
    words = "Mean over seeds; the band is one deviation to each side."
    if all(record["moment"] == "end" for record in data):
        words += " Measured at the stages' ends; the lines only connect them."
    if len(start) > 1:
        words += " Dashed: a new stage begins."
    if any(record["moment"] == "before" for record in data):
        also = "the checkpoint and the text that it begins with, and " if group.is_text else ""
        words += f" A vertical step there is {also}what the intervention did, before any training."
    if len({(row.get("stage"), row.get("epoch")) for row in group.rows}) > POINTS:
        words += f" Of all evaluations about {POINTS} are drawn, those at boundaries among them."
    yield Chart(f"{group.number}{title} over all stages", _lines(group, data, start, percent), data, words)


def starts(rows: Sequence[Row], unit: str = "epoch") -> dict[int, int]:
    """Return the epoch or step, counted over all stages, at which each stage begins; the longest run decides.

    Example:
        >>> starts([{"stage": 0, "epoch": 8}, {"stage": 0, "epoch": 5}, {"stage": 1, "epoch": 4}])
        {0: 0, 1: 8}
    """
    begun, total = {}, 0
    for stage, epochs in lengths(rows, unit).items():
        begun[stage] = total
        total += epochs
    return begun


def lengths(rows: Sequence[Row], unit: str = "epoch") -> dict[int, int]:
    """Return the number of epochs, or steps, of each stage in the run in which it was longest."""
    longest: dict[int, int] = {}
    for row in rows:
        longest[row.get("stage", 0)] = max(longest.get(row.get("stage", 0), 0), row.get(unit, 0))
    return dict(sorted(longest.items()))


def course(group: RunGroup, measure: str, start: Mapping[int, int]) -> list[Record]:
    """Return mean and deviation of a column by method, at each evaluation and before and after each boundary."""
    names = {row.get("stage", 0): str(row.get("stage_name", row.get("stage", 0))) for row in group.rows}
    values = _by_place(group.rows, measure, group.unit)
    keep = _kept(values)
    data: list[Record] = []
    for method, stage, epoch, moment in sorted(values, key=lambda k: (*k[:3], ORDER.index(k[3]))):
        if (stage, epoch) not in keep:
            continue
        found = spread(values[method, stage, epoch, moment])
        wide = found.deviation if found.n > 1 else 0.0
        where = {"epoch": start[stage] + epoch, "stage": names[stage], "moment": moment, "order": len(data)}
        ends = {"low": found.mean - wide, "high": found.mean + wide}
        data.append({"method": method, **where, "mean": found.mean, **ends, "seeds": found.n})
    return data


def _by_place(rows: Sequence[Row], measure: str, unit: str) -> dict[PointKey, list[float]]:
    """Return the numbers of all seeds; what is measured at stages' ends only meets there, however early a run stops."""
    given = [row for row in rows if is_finite(row.get(measure))]
    ends_only = all(row.get("event") == "end" for row in given)
    longest, values = lengths(rows, unit), dict[PointKey, list[float]]()
    for row in given:
        stage, method = row.get("stage", 0), str(row["methods"])
        for moment, value in _moments(row, measure):
            when = (longest[stage], "end") if ends_only else (row.get(unit, 0), moment)
            values.setdefault((method, stage, *when), []).append(value)
    return values


def _moments(row: Row, measure: str) -> Iterator[tuple[str, float]]:
    event = row.get("event", "epoch")
    if event == "boundary" and is_finite(row.get(f"{measure}_before")):
        yield "before", float(row[f"{measure}_before"])
    yield ("after" if event == "boundary" else "epoch"), float(row[measure])


def _kept(values: Mapping[PointKey, Any]) -> set[tuple[int, int]]:
    """Return which epochs are drawn: all, or some of them and every stage's first and last."""
    places = sorted({(stage, epoch) for _, stage, epoch, _ in values})
    every = max(1, -(-len(places) // POINTS))
    ends = {*places[:1], *places[-1:]}
    for one, after in zip(places, places[1:], strict=False):
        ends |= {one, after} if one[0] != after[0] else set()
    return set(places[::every]) | ends


def _lines(group: RunGroup, data: Sequence[Record], start: Mapping[int, int], percent: bool) -> dict[str, Any]:
    rules = [{"epoch": epoch} for epoch in start.values() if epoch > 0]
    axis = {"format": "%"} if percent else {}
    x = {"field": "epoch", "type": "quantitative", "title": f"{group.unit}s, all stages", "axis": {"tickMinStep": 1}}
    color = colors(group)
    few = len(data) <= MARKED * len(group.methods)
    shown = [{"field": name} for name in ("method", "stage", "moment", "epoch", "mean", "low", "high", "seeds")]
    y = {"field": "mean", "type": "quantitative", "scale": {"zero": False}, "title": None, "axis": axis}
    band = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": color}
    line = {"x": x, "y": y, "color": color, "order": {"field": "order"}, "tooltip": shown}
    return {
        "height": 300,
        "layer": [
            {
                "data": {"values": rules},
                "mark": {"type": "rule", "strokeDash": [4, 4], "color": "#9aa0ab"},
                "encoding": {"x": {"field": "epoch", "type": "quantitative"}},
            },
            {"mark": {"type": "area", "opacity": 0.13}, "encoding": band},
            {"mark": {"type": "line", "point": {"size": 24} if few else False}, "encoding": line},
        ],
    }


def trajectories(group: RunGroup, but: str) -> Iterator[Chart]:
    """Yield the courses of all metrics, other accuracies and the loss."""
    columns = dict.fromkeys(name for row in group.rows for name in row)
    taken = ("accuracy_before", "loss_before", but)
    for name in columns:
        if name not in taken and (name.startswith(("metric.", "accuracy", "loss_")) or name == "loss"):
            yield from over_stages(group, name)
