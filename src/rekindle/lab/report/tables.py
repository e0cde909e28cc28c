"""Results as Markdown and LaTeX: the best in bold; a star if significant, a circle if also after Holm (L Table 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rekindle.statistics.intervals import Spread, spread
from rekindle.statistics.paired_tests import PairedTest, Results, Setting, Test, compare_all

LEVEL = 0.05
Format = Literal["markdown", "latex"]


@dataclass(frozen=True)
class TableCell:
    """One method in one setting.

    Args:
        spread: Number, mean and deviation over seeds; None if it was not run.
        is_best: Whether its mean is the best of the row.
        mark: "" or, against the baseline in this row, "*" significant, "o" significant after Holm's correction.
    """

    spread: Spread | None
    is_best: bool = False
    mark: Literal["", "*", "o"] = ""


def cells(results: Results, *, baseline: str | None = None, test: Test = "sign") -> dict[Setting, dict[str, TableCell]]:
    """Return what stands in the table, row by row.

    Args:
        results: As `collect` gives them.
        baseline: Method that the others are tested against, seed by seed; no marks when left out.
        test: Which test.
    """
    return {setting: _row(results, setting, baseline, test) for setting in results.values}


def _row(results: Results, setting: Setting, baseline: str | None, test: Test) -> dict[str, TableCell]:
    alone = replace(results, values={setting: results.values[setting]})
    marks = {}
    if baseline is not None:
        found = compare_all(alone, baseline=baseline, test=test, intervals=False)
        marks = {comparison.better: mark(comparison) for comparison in found}
    row = {}
    for method in results.methods:
        numbers = results.of(setting, method)
        best = bool(numbers) and method == results.best(setting)
        row[method] = TableCell(spread(numbers) if numbers else None, best, marks.get(method, ""))
    return row


def mark(comparison: PairedTest, level: float = LEVEL) -> Literal["", "*", "o"]:
    """Return "o" if a comparison is significant after Holm's correction, "*" if before only."""
    return "o" if comparison.p_holm < level else "*" if comparison.p < level else ""


def results_table(
    results: Results,
    format: Format = "markdown",
    *,
    baseline: str | None = None,
    test: Test = "sign",
    digits: int = 2,
    percent: bool = False,
) -> str:
    """Return a table with a row for each setting and a column for each method: mean, deviation, best, significance.

    Args:
        results: As `collect` gives them.
        format: "markdown" or "latex".
        baseline: Method that the others are tested against.
        test: Which test.
        digits: After the point.
        percent: Show hundredths, for accuracies.
    """
    body = []
    for setting, row in cells(results, baseline=baseline, test=test).items():
        shown = [_show(cell, format, digits, 100.0 if percent else 1.0) for cell in row.values()]
        body.append([*(_word(text, format) for text in setting), *shown])
    head = [_word(name, format) for name in (*results.fields, *results.methods)]
    table = _lay_out(head, body, format, len(results.fields))
    return f"{table}\n{_legend(results, baseline, test, format)}\n"


def significance_table(comparisons: Sequence[PairedTest], methods: Sequence[str], format: Format = "markdown") -> str:
    """Return L's Table 3: a mark where the column's method is better than the row's.

    Args:
        comparisons: As `compare_all` gives them.
        methods: Rows and columns, in this order.
        format: "markdown" or "latex".
    """
    names = list(methods)
    found = {(c.worse, c.better): mark(c) for c in comparisons}
    body = [[_word(row, format), *(_mark(found.get((row, column), ""), format) for column in names)] for row in names]
    return _lay_out(["", *(_word(name, format) for name in names)], body, format, 1) + "\n"


def _show(cell: TableCell, format: Format, digits: int, scale: float) -> str:
    if cell.spread is None:
        return "-" if format == "markdown" else "--"
    mean = f"{scale * cell.spread.mean:.{digits}f}"
    deviation = "" if math.isnan(cell.spread.deviation) else f"{scale * cell.spread.deviation:.{digits}f}"
    if format == "latex":
        text = rf"\mathbf{{{mean}}}" if cell.is_best else mean
        behind = rf" \pm {deviation}" if deviation else ""
        return f"${text}{behind}{_mark(cell.mark, format, within=True)}$"
    text = f"{mean} ± {deviation}" if deviation else mean
    return (f"**{text}**" if cell.is_best else text) + _mark(cell.mark, format)


def _mark(given: str, format: Format, within: bool = False) -> str:
    if format == "markdown":
        return {"": "", "*": r" \*", "o": " ∘"}[given]
    symbol = {"": "", "*": r"\star", "o": r"\circ"}[given]
    if within:
        return f"^{{{symbol}}}" if symbol else ""
    return f"${symbol}$" if symbol else ""


def _word(text: str, format: Format) -> str:
    if format == "markdown":
        return text.replace("|", r"\|")
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(letter, f"\\{letter}" if letter in "&%$#_{}" else letter) for letter in text)


def _lay_out(head: list[str], body: list[list[str]], format: Format, words: int) -> str:
    if format == "markdown":
        rule = ["---"] * words + ["---:"] * (len(head) - words)
        return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))
    lines = [" & ".join(line) + r" \\" for line in (head, *body)]
    columns = "l" * words + "r" * (len(head) - words)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _legend(results: Results, baseline: str | None, test: Test, format: Format) -> str:
    counts = sorted(len(by_seed) for by_method in results.values.values() for by_seed in by_method.values())
    n = str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    text = f"{results.metric}, mean ± deviation over {n} seeds; best in bold."
    if baseline is not None:
        test_told = f"{test} test, one-sided, p < {LEVEL}"
        text += f" * better than {baseline} ({test_told}), ∘ also after Holm's correction in the row."
    return "\n" + text if format == "markdown" else "\n".join(f"% {line}" for line in text.splitlines())
