"""Charts of what interventions do at boundaries: to the accuracy at once, and to the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rekindle.lab.report.encodings import bars, colors, is_finite, title_of
from rekindle.lab.report.load_runs import RunGroup
from rekindle.lab.report.summary import scale_of
from rekindle.lab.runs.rows import Row
from rekindle.pages.page import Chart, Rows, Text
from rekindle.statistics.intervals import spread
from rekindle.statistics.significance import differences

LINES = 250  # most lines of a table
Record = dict[str, Any]


def boundaries(group: RunGroup, measure: str) -> Iterator[Chart | Rows | Text]:
    """Yield what the interventions did to a column before any training, by boundary and method."""
    for method, why in _without_effect(group).items():
        yield Text(f"{method} changed nothing at a boundary, and is there the same as none: {why}.", "warning")
    data = list(_jumps(group, measure))
    if not data:
        return
    stages = {record["stage"] for record in data}
    scale, name = scale_of(measure)
    form = "+%" if scale == 100 else "+"
    spec = bars(group, "change", "low", "high", form) if len(stages) == 1 else _by_stage(group, form)
    title = f"{group.number}Change of the {title_of(measure).lower()} right after the boundary"
    words = "Right after the intervention minus right before it, on the test data of the new stage; mean and deviation."
    yield Chart(title, spec, data, words)
    if len(data) <= LINES:
        numbers = ("before", "after", "change", "deviation", "end of stage")
        rows = [[r["stage"], r["method"], *(_times(r[n], scale) for n in numbers), r["seeds"]] for r in data]
        yield Rows(("stage", "method", *numbers, "seeds"), rows, caption=f"All numbers: {name}.")


def _without_effect(group: RunGroup) -> dict[str, str]:
    return {row["methods"]: row["no_effect"] for row in group.rows if row.get("no_effect")}


def _times(value: float | None, scale: float) -> float | None:
    return None if value is None else scale * value


def _jumps(group: RunGroup, measure: str) -> Iterator[Record]:
    parts: dict[tuple[int, int], list[Row]] = {}
    order = {method: n for n, method in enumerate(group.methods)}
    for row in group.rows:
        parts.setdefault((row.get("stage", 0), order[row["methods"]]), []).append(row)
    for (stage, _), rows in sorted(parts.items(), key=lambda part: part[0]):
        at = [row for row in rows if is_finite(row.get(f"{measure}_before")) and is_finite(row.get(measure))]
        ends = [row[measure] for row in rows if row.get("event") == "end" and is_finite(row.get(measure))]
        if at:
            where = {"stage": f"{stage}: {at[0].get('stage_name', stage)}", "number": stage}
            yield where | _jump(at, measure) | {"end of stage": spread(ends).mean if ends else None}


def _jump(rows: Sequence[Row], measure: str) -> Record:
    """Return what one method did at one boundary: before, after and the change, over seeds."""
    before, after = [row[f"{measure}_before"] for row in rows], [row[measure] for row in rows]
    found = spread(differences(after, before))
    wide = found.deviation if found.n > 1 else 0.0
    return {
        "method": rows[0]["methods"],
        "before": spread(before).mean,
        "after": spread(after).mean,
        "change": found.mean,
        "deviation": found.deviation if found.n > 1 else None,
        "low": found.mean - wide,
        "high": found.mean + wide,
        "seeds": found.n,
    }


def _by_stage(group: RunGroup, form: str) -> dict[str, Any]:
    x = {"field": "number", "type": "quantitative", "title": "stage", "axis": {"tickMinStep": 1}}
    y = {"field": "change", "type": "quantitative", "title": None, "axis": {"format": form}}
    encoding = {"x": x, "y": y, "color": colors(group)}
    return {"mark": {"type": "line", "point": {"size": 24}, "tooltip": {"content": "data"}}, "encoding": encoding}


def sfe_against_dfi(group: RunGroup) -> Iterator[Chart]:
    """Yield how far the weights were moved against how near to an isometry they are."""
    for title, x, y, event, words in SCATTERS:
        data = [
            {"method": row["methods"], "seed": row["seed"], "stage": row.get("stage", 0), "SFE": row[x], "DfI": row[y]}
            for row in group.rows
            if row.get("event") == event and is_finite(row.get(x)) and is_finite(row.get(y))
        ]
        if data:
            encoding = {"x": _axis(data, "SFE"), "y": _axis(data, "DfI"), "color": colors(group)}
            mark = {"type": "point", "filled": True, "size": 60, "opacity": 0.75, "tooltip": {"content": "data"}}
            yield Chart(f"{group.number}{title}", {"mark": mark, "height": 300, "encoding": encoding}, data, words)


SCATTERS = (
    (
        "SFE against DfI of the interventions",
        "sfe",
        "dfi_after",
        "boundary",
        "A point for each boundary and seed. Right: weights moved further (squared Frobenius error). Low: nearer to an "
        "isometry. Both are sums over what a method edited, so methods that edit other layers are hard to compare; "
        "methods without edits are not here.",
    ),
    (
        "SFE against DfI at the stages' ends",
        "metric.sfe",
        "metric.dfi",
        "end",
        "A point for each stage and seed: distance of the weights from the initial ones, and their deviation from an "
        "isometry, as the metrics measure them.",
    ),
)


def _axis(data: Sequence[Record], field: str) -> dict[str, Any]:
    numbers = [record[field] for record in data]
    wide = min(numbers) > 0 and max(numbers) > 30 * min(numbers)
    look: Record = {"scale": {"type": "log"}, "axis": {"tickCount": 5}} if wide else {"scale": {"zero": False}}
    return {"field": field, "type": "quantitative", **look}
