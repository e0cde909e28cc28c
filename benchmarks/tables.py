"""Turn committed rows into Markdown tables: `python benchmarks/tables.py` writes benchmarks/TABLES.md."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent


def table(path: Path) -> str:
    """Return the rows of one file as a Markdown table, columns in order of first appearance."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"## {path.stem}", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    """Write all tables."""
    parts = ["# Measured rows", "Generated from `rows/` by `python benchmarks/tables.py`; rules in `RULES.md`."]
    parts += [table(path) for path in sorted((HERE / "rows").glob("*.jsonl"))]
    (HERE / "TABLES.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
