"""What the charts of a group share: colors, bars, names of columns."""

from __future__ import annotations

import math
from typing import Any

from rekindle.lab.report.load_runs import RunGroup
from rekindle.metrics.registry import list_metrics
from rekindle.pages.page import PALETTE

LIGHTER = ("#8fc1de", "#f4bd8a", "#b4d39c", "#dfa3c6", "#b9bbc4", "#ecd98a", "#cf9d91", "#9fd6d3")  # beyond eight


def colors(group: RunGroup) -> dict[str, Any]:
    """Return the colors of methods, the same in every chart of the page."""
    names, palette = group.results.methods, (*PALETTE, *LIGHTER)
    scale = {"domain": names, "range": [palette[group.everywhere.index(name) % len(palette)] for name in names]}
    columns = 1 if max(map(len, names)) > 20 else 3
    legend = {"orient": "bottom", "columns": columns, "labelLimit": 340, "symbolOpacity": 1}
    return {"field": "method", "type": "nominal", "title": None, "scale": scale, "legend": legend}


def title_of(measure: str) -> str:
    """Return what a column is called.

    Example:
        >>> title_of("accuracy"), title_of("accuracy_train")
        ('Accuracy', 'Accuracy, train')
    """
    cards = {f"metric.{card.key}": card for card in list_metrics()}
    if measure in cards:
        return cards[measure].title
    if measure in ("loss_first", "loss_second"):
        return f"Loss on the {measure.removeprefix('loss_')} text"
    first, _, rest = measure.removeprefix("metric.").partition("_")
    return first.capitalize() + (f", {rest.replace('_', ' ')}" if rest else "")


def bars(group: RunGroup, field: str, low: str, high: str, form: str = "") -> dict[str, Any]:
    """Return a bar for each method, best first, with a line from low to high."""
    y = {"field": "method", "type": "nominal", "sort": group.methods, "title": None}
    axis = {"tickCount": 12, **({"format": form} if form else {})}
    x = {"field": field, "type": "quantitative", "title": None, "axis": axis}
    color = {**colors(group), "legend": None}
    bar = {"mark": {"type": "bar", "tooltip": {"content": "data"}}, "encoding": {"y": y, "x": x, "color": color}}
    rule = {"mark": "rule", "encoding": {"y": y, "x": {**x, "field": low}, "x2": {"field": high}}}
    return {"height": 30 + 30 * len(group.methods), "layer": [bar, rule]}


def is_finite(value: Any) -> bool:
    """Return whether a cell of a row is a number that can be drawn."""
    return isinstance(value, int | float) and math.isfinite(value)
