"""One self-contained HTML page from sections of text, tables and charts: no network, no server, readable on a phone.

Charts are Vega-Lite specifications (plain dicts) with their numbers inside; the library that draws them is put into the
page. Every chart has its numbers as a table to download. Tables sort when a heading is clicked.
"""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rekindle.errors import RekindleError
from rekindle.files import write_whole

PALETTE = ("#2a6f97", "#e07a1f", "#5b8c3a", "#a23b72", "#6c6f7d", "#c9a227", "#8c4a3b", "#3d9a97")


@dataclass(frozen=True)
class Text:
    """A paragraph; `mark` is one of "plain", "good", "warning", "bad", or "code" for lines that stay as they are."""

    words: str
    mark: str = "plain"


@dataclass(frozen=True)
class Rows:
    """A table.

    Args:
        columns: Headings.
        rows: Cells: text or numbers; numbers sort as such.
        marked: (row, column) of cells to be set in bold.
        caption: A line below.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    marked: frozenset[tuple[int, int]] = frozenset()
    caption: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart.

    Args:
        title: What it shows.
        spec: Vega-Lite without data, size and title.
        data: Records.
        caption: How to read it.
    """

    title: str
    spec: Mapping[str, Any]
    data: Sequence[Mapping[str, Any]]
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    title: str
    content: Sequence[Text | Rows | Chart]


def write_page(path: str | Path, title: str, sections: Sequence[Section], *, footer: str = "") -> Path:
    """Write the page, whole or not at all.

    Raises:
        RekindleError: The drawing library is missing, or the file cannot be written.
    """
    return write_output(Path(path), page(title, sections, footer=footer))


def write_output(path: Path, text: str) -> Path:
    """Write a file that a user asked for, whole or not at all.

    Raises:
        RekindleError: It cannot be written.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise RekindleError(
            expected=f"a folder that {path.name} can be written to",
            got=f"{type(error).__name__}: {error.strerror}",
            fix=f"make the folder {path.parent}, free some space, or name another file",
        ) from error
    return path


def page(title: str, sections: Sequence[Section], *, footer: str = "") -> str:
    """Return the page as text."""
    charts: list[dict[str, Any]] = []
    body = "\n".join(_section(section, charts) for section in sections)
    specs = json.dumps(charts, allow_nan=False).replace("</", "<\\/")
    return TEMPLATE.format(
        title=html.escape(title),
        body=body,
        footer=html.escape(footer),
        specs=specs,
        library=_library() if charts else "",
        style=_beside("page.css"),
        script=_beside("page.js"),
        draw=_beside("draw.js") if charts else "mark(0);",
    )


def _section(section: Section, charts: list[dict[str, Any]]) -> str:
    parts = [f"<section><h2>{html.escape(section.title)}</h2>"]
    for item in section.content:
        if isinstance(item, Text):
            parts.append(f'<p class="{item.mark}">{html.escape(item.words)}</p>')
        elif isinstance(item, Rows):
            parts.append(_table(item))
        else:
            parts.append(_chart(item, charts))
    return "\n".join([*parts, "</section>"])


def _table(table: Rows) -> str:
    head = "".join(f'<th tabindex="0">{html.escape(name)}</th>' for name in table.columns)
    body = []
    for r, row in enumerate(table.rows):
        cells = "".join(_cell(value, (r, c) in table.marked) for c, value in enumerate(row))
        body.append(f"<tr>{cells}</tr>")
    caption = f"<p class='caption'>{html.escape(table.caption)}</p>" if table.caption else ""
    return (
        f"<div class='scroll'><table class='sortable'><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>{caption}"
    )


def _cell(value: Any, bold: bool) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    shown = shown_number(value) if number else html.escape("" if value is None else str(value))
    kind = f' class="number" data-value="{value}"' if number else ""
    return f"<td{kind}>{f'<b>{shown}</b>' if bold else shown}</td>"


def shown_number(value: float) -> str:
    """Return a number as it is read.

    Example:
        >>> shown_number(0.123456), shown_number(1234567), shown_number(12)
        ('0.1235', '1.235e+06', '12')
    """
    return str(value) if isinstance(value, int) and abs(value) < 1_000_000 else f"{value:.4g}"


def _chart(chart: Chart, charts: list[dict[str, Any]]) -> str:
    number = len(charts)
    config = {
        "background": None,
        "font": "system-ui, sans-serif",
        "range": {"category": list(PALETTE)},
        "axis": {"labelLimit": 160, "gridColor": "#e3e3e3"},
        "legend": {"orient": "bottom", "columns": 3},
    }
    spec: dict[str, Any] = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": 260,
    }
    charts.append({**spec, "config": config, "data": {"values": [_plain(row) for row in chart.data]}, **chart.spec})
    link = f"<a download='{_file_name(chart.title)}.csv' href='{_as_csv(chart.data)}'>numbers (CSV)</a>"
    caption = f"{html.escape(chart.caption)} " if chart.caption else ""
    return (
        f"<figure><h3>{html.escape(chart.title)}</h3><div class='chart' id='chart-{number}'></div>"
        f"<figcaption>{caption}{link}</figcaption></figure>"
    )


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: (None if isinstance(v, float) and (v != v or abs(v) == float("inf")) else v) for key, v in row.items()}


def _file_name(title: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower()).strip("-")


def _as_csv(data: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in data for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(data)
    return "data:text/csv;charset=utf-8," + quote(text.getvalue())


@cache
def _beside(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Return the JavaScript that draws charts.

    Raises:
        RekindleError: vl-convert-python is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise RekindleError(
            expected="vl-convert-python, which holds the library that draws charts",
            got="it is not installed",
            fix="pip install 'rekindle[report]'",
        ) from error
    library: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return library.replace("</script", "<\\/script")


TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><link rel="icon" href="data:,"><style>{style}</style></head>
<body><main><h1>{title}</h1>
{body}
<footer>{footer}</footer></main>
<script id="specs" type="application/json">{specs}</script>
<script>{script}</script>
<script type="module">{library}</script>
<script type="module">{draw}</script></body></html>
"""
