"""Turn committed rows into Markdown tables: `python benchmarks/tables.py` writes benchmarks/TABLES.md."""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent


def tables(path: Path) -> str:
    """Return the rows of one file as Markdown, a table for each set of columns."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return "\n\n".join([f"## {path.stem}", *(table(list(kind), rows) for kind in dict.fromkeys(map(tuple, rows)))])


def table(columns: list[str], rows: list[dict[str, object]]) -> str:
    """Return the rows that have just these columns."""
    lines = [columns, ["---"] * len(columns)]
    lines += [[str(value) for value in row.values()] for row in rows if list(row) == columns]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def reproduced(folder: Path) -> str:
    """Return a table of what `rekindle reproduce` found, a line for each entry."""
    lines = [["entry", "preset", "numbers that agree", "claims that hold", "claims that do not", "not decided"]]
    lines.append(["---"] * len(lines[0]))
    for path in sorted(folder.glob("*.jsonl")):
        if path.name.endswith(".observations.jsonl"):
            continue
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        judged = [row["verdict"] for row in rows if row["kind"] == "number" and row["verdict"] in ("agrees", "differs")]
        claims = [row["verdict"] for row in rows if row["kind"] == "claim"]
        numbers = f"{judged.count('agrees')} of {len(judged)}" if judged else "none compared"
        told = [str(claims.count(verdict)) for verdict in ("holds", "does not hold", "not decided")]
        name = f"[{rows[0]['entry']}](reproduce/{path.stem}.md)"
        lines.append([name, rows[0]["preset"], numbers, *told])
    return "\n".join(["## reproduce", "", *(f"| {' | '.join(line)} |" for line in lines)])


def main() -> None:
    """Write all tables."""
    parts = ["# Measured rows", "Generated from `rows/` by `python benchmarks/tables.py`; rules in `RULES.md`."]
    parts += [tables(path) for path in sorted((HERE / "rows").glob("*.jsonl"))]
    parts.append(reproduced(HERE / "reproduce"))
    (HERE / "TABLES.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
