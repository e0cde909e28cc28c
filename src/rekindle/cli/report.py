"""`rekindle report`: the results of a sweep as one page, and as tables for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from rekindle.lab.report.load_runs import LoadedRuns
    from rekindle.lab.report.tables import Format


def run(
    runs: Annotated[Path, tyro.conf.Positional],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    markdown: Path | None = None,
    latex: Path | None = None,
    baseline: str = "none",
    measure: str | None = None,
) -> None:
    """Write a self-contained page about all finished runs of a folder: tables, tests, charts, settings, failures.

    Args:
        runs: Folder of results, as `rekindle sweep` writes it.
        out: The page.
        markdown: Also write the table of results as Markdown to this file.
        latex: Also write it as LaTeX (booktabs) to this file.
        baseline: Method that the others are compared with.
        measure: Column of the rows that is compared, at the end of each run: accuracy, loss, metric.dormant. The
            accuracy if left out, or the loss of runs on text.
    """
    from rekindle.lab.report.load_runs import read_runs
    from rekindle.lab.report.runs_page import write_runs_page

    found = read_runs(runs, baseline=baseline, measure=measure)
    print(f"page: {write_runs_page(found, out)}")
    if markdown is not None:
        print(f"Markdown: {write_table(found, markdown, 'markdown')}")
    if latex is not None:
        print(f"LaTeX: {write_table(found, latex, 'latex')}")


def write_table(found: LoadedRuns, path: Path, format: Format) -> Path:
    """Write the table of results to a file."""
    from rekindle.lab.report.tables import results_table
    from rekindle.pages.page import write_output

    percent = found.results.metric.startswith("accuracy")
    digits = 2 if percent else 4
    text = results_table(found.results, format, baseline=found.baseline, digits=digits, percent=percent)
    return write_output(path, text)
