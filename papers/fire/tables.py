"""Means of observations as a table of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from papers.experiment import Row
from papers.rules import pick
from rekindle.statistics import spread


def means(observations: Sequence[Row], measures: Sequence[str], conditions: Mapping[str, str] | None = None) -> str:
    """Return a line for each method and a column for each measure, or for each condition and measure.

    Args:
        observations: With condition, method, seed and numbers.
        measures: What is shown.
        conditions: Conditions and what they are called; if left out there is one column for all of them.

    Example:
        >>> print(means([{"condition": "a", "method": "none", "seed": 0, "loss": 2.0}], ["loss"]))
        | method | loss |
        | --- | ---: |
        | none | 2.000 |
    """
    columns = [(name, where) for where in conditions or [None] for name in measures]
    heads = [name if where is None else f"{(conditions or {})[where]}: {name}" for name, where in columns]
    lines = [["method", *heads], ["---"] + ["---:"] * len(columns)]
    for method in dict.fromkeys(str(one["method"]) for one in observations):
        cells = [_mean(observations, method, name, where) for name, where in columns]
        lines.append([method, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mean(observations: Sequence[Row], method: str, measure: str, where: str | None) -> str:
    numbers = list(pick(observations, method, measure, None if where is None else [where]).values())
    if not numbers:
        return "-"
    found = spread(numbers)
    return f"{found.mean:.3f}" + (f" ± {found.deviation:.3f}" if found.n > 1 else "")
