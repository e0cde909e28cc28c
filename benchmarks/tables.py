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
    return lined([columns, *([str(value) for value in row.values()] for row in rows if list(row) == columns)])


def reproduced(folder: Path) -> str:
    """Return what `rekindle reproduce` found: a table with a line for each entry, and one for each claim."""
    entries = [["entry", "preset", "numbers that agree", "claims that hold", "claims that do not", "not decided"]]
    said = [["entry", "claim", "verdict"]]
    for path in sorted(folder.glob("*.jsonl")):
        if path.name.endswith(".observations.jsonl"):
            continue
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        judged = [row["verdict"] for row in rows if row["kind"] == "number" and row["verdict"] in ("agrees", "differs")]
        claims = [(row["claim"], row["verdict"]) for row in rows if row["kind"] == "claim"]
        numbers = f"{judged.count('agrees')} of {len(judged)}" if judged else "none compared"
        found = [verdict for _, verdict in claims]
        told = [str(found.count(verdict)) for verdict in ("holds", "does not hold", "not decided")]
        name = f"[{rows[0]['entry']}](reproduce/{path.stem}.md)"
        entries.append([name, rows[0]["preset"], numbers, *told])
        said += [[name, claim, verdict] for claim, verdict in claims]
    return "\n\n".join(["## reproduce", lined(entries), "Claims, by the rules of the entries:", lined(said)])


def lined(lines: list[list[str]]) -> str:
    """Return a table whose first line is its head."""
    head, *body = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))


def written() -> str:
    """Return all tables."""
    parts = ["# Measured rows", "Generated from `rows/` by `python benchmarks/tables.py`; rules in `RULES.md`."]
    parts += [tables(path) for path in sorted((HERE / "rows").glob("*.jsonl"))]
    return "\n\n".join([*parts, reproduced(HERE / "reproduce")]) + "\n"


if __name__ == "__main__":
    (HERE / "TABLES.md").write_text(written())
