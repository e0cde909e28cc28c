"""Turn committed rows into Markdown: `python benchmarks/tables.py` writes TABLES.md here."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent


def page() -> str:
    """Return all rows as one page."""
    parts = [
        "# Measured rows",
        "Generated from `rows/` by `python benchmarks/tables.py`; rules in `RULES.md`. The papers' tables and figures "
        "are in [papers](../papers/README.md).",
    ]
    parts += [tables(path) for path in sorted((HERE / "rows").glob("*.jsonl"))]
    return "\n\n".join(parts) + "\n"


def tables(path: Path) -> str:
    """Return the rows of one file as Markdown, a table for each set of columns."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return "\n\n".join([f"## {path.stem}", *(table(list(kind), rows) for kind in dict.fromkeys(map(tuple, rows)))])


def table(columns: list[str], rows: list[dict[str, object]]) -> str:
    """Return the rows that have just these columns."""
    body = [[str(value) for value in row.values()] for row in rows if list(row) == columns]
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *body))


if __name__ == "__main__":
    (HERE / "TABLES.md").write_text(page(), encoding="utf-8")
