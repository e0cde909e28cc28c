"""What methods cost: seconds of a run, alone and relative to the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rekindle.lab.report.encodings import bars, is_finite
from rekindle.lab.report.load_runs import RunGroup
from rekindle.pages.page import Chart, Rows
from rekindle.statistics.intervals import spread
from rekindle.statistics.paired_tests import last_rows


def cost(group: RunGroup) -> Iterator[Chart | Rows]:
    """Yield the seconds of training by method, alone and relative to the baseline."""
    seconds = {method: _seconds(group, method) for method in group.methods}
    if not all(seconds.values()):
        return
    usual = spread(seconds[group.baseline]).mean if group.baseline is not None else math.nan
    data, relative = [], group.baseline is not None and usual > 0
    for method, values in seconds.items():
        found, within = spread(values), _within_boundaries(group, method)
        wide = found.deviation if found.n > 1 else 0.0
        record = {"method": method, "seconds": found.mean, "deviation": wide if found.n > 1 else None, "seeds": found.n}
        record |= {f"relative to {group.baseline}": found.mean / usual} if relative else {}
        record |= {"at boundaries": within, "low": max(0.0, found.mean - wide), "high": found.mean + wide}
        data.append(record)
    words = "Seconds of training steps and interventions, without evaluations and metrics. Runs beside each other on "
    words += "one machine slow each other down: compare only what was run alike."
    yield Chart(f"{group.number}Seconds of a run", bars(group, "seconds", "low", "high"), data, words)
    columns = [name for name in data[0] if name not in ("low", "high")]
    yield Rows(columns, [[record[name] for name in columns] for record in data])


def _seconds(group: RunGroup, method: str) -> list[float]:
    last = last_rows(row for row in group.rows if row["methods"] == method)
    return [float(row["seconds"]) for row in last if is_finite(row.get("seconds"))]


def _within_boundaries(group: RunGroup, method: str) -> float:
    """Return the mean over runs of the seconds that interventions took."""
    runs: dict[str, float] = {}
    for row in group.rows:
        if row["methods"] == method:
            runs[row["key"]] = runs.get(row["key"], 0.0) + float(row.get("boundary_seconds") or 0.0)
    return spread(list(runs.values())).mean
