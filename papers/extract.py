"""From the rows of runs to observations: one mapping for each condition, method and seed, with its measured numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from papers.experiment import Cell, Measure, Row
from rekindle.lab.runs import Run, Store


def observe(cells: Sequence[tuple[Cell, list[Run]]], measures: Sequence[Measure], store: Store) -> list[Row]:
    """Return an observation for each finished run.

    Args:
        cells: Cells with their runs, as `Study.runs` returns them.
        measures: What to read.
        store: Where the rows are.
    """
    observations = []
    for cell, runs in cells:
        for run in runs:
            if store.state(run.key) == "finished":
                rows = store.rows(run.key)
                head = {"condition": cell.condition, "method": cell.method, "seed": run.seed, "key": run.key}
                observations.append({**head, **{measure.name: value(rows, measure) for measure in measures}})
    return observations


def value(rows: Sequence[Row], measure: Measure) -> float | None:
    """Return one number of a run; None if no row has it.

    Example:
        >>> rows = [{"stage": 0, "event": "end", "accuracy": 0.5}, {"stage": 1, "event": "end", "accuracy": 0.7}]
        >>> value(rows, Measure(at="ends", scale=100))
        60.0
    """
    picked = _pick(rows, measure)
    numbers = [float(one) for one in picked if one is not None and math.isfinite(one)]
    return float(measure.scale * np.mean(numbers)) if numbers and len(numbers) == len(picked) else None


def _pick(rows: Sequence[Row], measure: Measure) -> list[Any]:
    """Return the numbers whose mean is wanted; see `Measure.at`."""
    column = measure.column
    having = [row for row in rows if row.get(column) is not None]
    if not having:
        return []
    if measure.at == "last":
        return [having[-1][column]]
    if measure.at == "step":
        last = max(row["stage"] for row in having)
        return [row[column] for row in having if (row["stage"], row["step"]) == (last, measure.step)][-1:]
    if measure.at in ("best", "rise"):
        trained = [row for row in having if row["event"] != "boundary"]
        best, *earlier = _best_by_stage(trained, column)[::-1]
        return [best] if measure.at == "best" else [best - max(earlier)] if earlier else []
    if measure.at in ("boundary", "gap"):
        at = [row for row in having if row["event"] == "boundary"][-1:]
        before = f"{column}_before"
        return [row[column] - (row[before] if measure.at == "gap" else 0.0) for row in at]
    if measure.at == "rebound":
        first = [row[column] for row in having if row["stage"] == having[0]["stage"] and row["event"] != "boundary"]
        return [first[-1] - min(first)] if first else []
    return _of_ends([row[column] for row in having if row["event"] == "end"], measure.at)


def _best_by_stage(rows: Sequence[Row], column: str) -> list[float]:
    """Return the highest number of each stage, in their order."""
    stages = dict.fromkeys(row["stage"] for row in rows)
    return [max(row[column] for row in rows if row["stage"] == stage) for stage in stages]


def _of_ends(ends: Sequence[Any], at: str) -> list[Any]:
    """Return what is wanted of the numbers at the ends of the stages."""
    quarter = -(-len(ends) // 4)  # rounded up
    if at == "first":
        return list(ends[:1])
    if at == "trend":
        return [np.mean(ends[-quarter:]) - np.mean(ends[:quarter])] if ends else []
    return list(ends[-quarter:] if at == "late" else ends)
