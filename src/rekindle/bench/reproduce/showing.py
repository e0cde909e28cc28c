"""Findings as Markdown: published and measured side by side, and what the verdict was found by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rekindle.bench.reproduce.entry import Entry, Preset, Row, Study


def page(entry: Entry, preset: Preset, study: Study, findings: Sequence[Row], observations: Sequence[Row] = ()) -> str:
    """Return the page of a made entry."""
    numbers = [row for row in findings if row["kind"] == "number"]
    claims = [row for row in findings if row["kind"] != "number"]
    parts = [
        f"# {entry.name}",
        f"{entry.paper}, {entry.where}. {entry.claim}",
        f"Preset `{preset}`; reduced: {study.reduced}. Made by `rekindle reproduce {entry.name} --preset {preset}`.",
    ]
    parts += [number_table(numbers)] if numbers else []
    parts += [claim_table(claims)] if claims else []
    parts += [entry.more(observations)] if entry.more is not None and observations else []
    parts += ["\n".join(f"- {note}" for note in entry.notes)] if entry.notes else []
    return "\n\n".join(parts) + "\n"


def number_table(rows: Sequence[Row]) -> str:
    """Return numbers side by side."""
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
        told = [_number(row, "measured", "deviation"), _text(row.get("n")), _text(row.get("wins"))]
        body.append([claim, row.get("measure", ""), *told, _p(row.get("p")), _p(row.get("p_against")), row["verdict"]])
    return _table(head, body, words=2)


def listing(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Return what `--list` says of each entry: a line with name, minutes at cpu and data needed; and the claim."""
    width = max(len(entry.name) for entry in entries)
    made = []
    for entry in entries:
        study = entry.study("cpu")
        minutes = "" if study is None or study.minutes is None else f"{study.minutes:g} min"
        data = "cannot be run yet" if study is None or entry.waits_for else ", ".join(study.data()) or "no data"
        waiting = f" Waits for {entry.waits_for}." if entry.waits_for else ""
        head = f"{entry.name:<{width}} {minutes:>8}  {data}"
        made.append((head, f"{entry.paper}, {entry.where}. {entry.claim}{waiting}"))
    return made


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
