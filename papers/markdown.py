"""Findings as Markdown: published and measured side by side, and how the verdict was found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from papers.experiment import Experiment, Preset, Row, Study


def page(
    experiment: Experiment, preset: Preset, study: Study, findings: Sequence[Row], observations: Sequence[Row] = ()
) -> str:
    """Return the page of an experiment that was run."""
    numbers = [row for row in findings if row["kind"] == "number"]
    claims = [row for row in findings if row["kind"] != "number"]
    command = f"rekindle reproduce {experiment.name} --preset {preset}"
    parts = [
        f"# {experiment.name}",
        f"{experiment.paper.name}, {experiment.where}. {experiment.claim}",
        f"Preset `{preset}`; reduced: {study.reduced}. Made by `{command}`.",
    ]
    parts += [number_table(numbers)] if numbers else []
    parts += [claim_table(claims)] if claims else []
    parts += [experiment.extra(observations)] if experiment.extra is not None and observations else []
    parts += ["\n".join(f"- {note}" for note in experiment.notes)] if experiment.notes else []
    return "\n\n".join(parts) + "\n"


def number_table(rows: Sequence[Row]) -> str:
    """Return published and measured numbers side by side."""
    head = ["condition", "method", "measure", "published", "measured", "n", "95% interval", "verdict"]
    body = [
        [
            row["condition"],
            row["method"],
            row["measure"],
            _number(row, "published", "published_deviation"),
            _number(row, "measured", "deviation"),
            str(row["n"]),
            _interval(row),
            row["verdict"],
        ]
        for row in rows
    ]
    return _table(head, body, words=3)


def claim_table(rows: Sequence[Row]) -> str:
    """Return comparisons, and claims in bold."""
    head = ["claim", "measure", "mean difference", "n", "won", "p", "p of the opposite", "verdict"]
    body = []
    for row in rows:
        claim = f"**{row['claim']}**" if row["kind"] == "claim" else row["claim"]
        measured = [_number(row, "measured", "deviation"), _text(row.get("n")), _text(row.get("wins"))]
        p_values = [_p(row.get("p")), _p(row.get("p_against"))]
        body.append([claim, row.get("measure", ""), *measured, *p_values, row["verdict"]])
    return _table(head, body, words=2)


def listing(experiments: Sequence[Experiment]) -> list[tuple[str, str]]:
    """Return what `--list` says of each experiment: a line with name, minutes and data needed; and the claim."""
    width = max(len(experiment.name) for experiment in experiments)
    lines = []
    for experiment in experiments:
        study = experiment.study("cpu")
        minutes = "" if study is None or study.minutes is None else f"{study.minutes:g} min"
        data = "cannot be run yet" if study is None or experiment.waits_for else ", ".join(study.data()) or "no data"
        waiting = f" Waits for {experiment.waits_for}." if experiment.waits_for else ""
        head = f"{experiment.name:<{width}} {minutes:>8}  {data}"
        lines.append((head, f"{experiment.paper.name}, {experiment.where}. {experiment.claim}{waiting}"))
    return lines


def _table(head: list[str], body: list[list[str]], words: int) -> str:
    rule = ["---"] * words + ["---:"] * (len(head) - words - 1) + ["---"]
    lines = [[cell.replace("|", r"\|") for cell in line] for line in body]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def _number(row: Row, mean: str, deviation: str) -> str:
    if row.get(mean) is None:
        return "-"
    spread = row.get(deviation)
    behind = "" if spread is None or math.isnan(spread) else f" ± {_text(spread)}"
    return f"{_text(row[mean])}{behind}"


def _interval(row: Row) -> str:
    ends = [row.get(end) for end in ("low", "high")]
    if any(end is None or math.isinf(end) for end in ends):
        return "-"
    return f"{_text(ends[0])} to {_text(ends[1])}"


def _p(value: Any) -> str:
    return "" if value is None else f"{value:.3g}"


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
