"""A small sweep from its spec to its page: run to the end, stopped and gone on, stacked; and its statistics."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from commands import command, ended, page, program
from lookup import find
from recording import TIMES, Seen, untimed

SPEC = """
protocol: warm_start:fraction=0.2,before=3,after=2
data: digits
model: mlp:hidden=16|16
batch_size: 64
metrics: [dfi, dormant, weight_norm, srank]
grid:
  methods: [none, fresh, shrink_perturb, fire, soft_rescale, "redo:period=3,threshold=0.3"]
seeds: 2
"""
STACKED = """
protocol: rounds:blocks=2,repeats=2,steps=5
data: synthetic:train=64,test=64
model: mlp_synthetic
optimizer: sgd:lr=0.1,momentum=0.9
grid: {methods: [none, shrink_perturb, layerwise]}
seeds: 3
"""
REPORTS = {
    "accuracy": (),
    "loss": ("--measure", "loss", "--baseline", "fresh"),
    "dormant": ("--measure", "metric.dormant"),
    "nothing": ("--measure", "no_such_column"),
}


def observe(seen: Seen, room: Path) -> None:
    """Observe all of it."""
    (room / "spec.yaml").write_text(SPEC)
    (room / "stacked.yaml").write_text(STACKED)
    seen.note("dry", command("sweep", "spec.yaml", "--out", "whole", "--dry-run", room=room))
    seen.note("whole/told", ended(program("sweep", "spec.yaml", "--out", "whole", "--workers", "1", room=room)))
    seen.note("whole", stored(room / "whole"))
    seen.note("whole/files", sorted(str(path.relative_to(room)) for path in (room / "whole").rglob("*")))
    stop_and_go_on(seen, room)
    seen.note("stacked/told", ended(program("sweep", "stacked.yaml", "--stack", "--workers", "1", room=room)))
    seen.note("stacked", stored(room / "runs" / "stacked"))
    _report(seen, room)
    _statistics(seen, room)


def stored(folder: Path) -> dict[str, Any]:
    """Return what runs were and what their rows are, by key, without times and versions."""
    found = {}
    for path in sorted(folder.glob("*/run.json")):
        rows = [json.loads(line) for line in (path.parent / "rows.jsonl").read_text().splitlines()]
        found[path.parent.name] = untimed({"run": json.loads(path.read_text())["run"], "rows": rows})
    return found


def stop_and_go_on(seen: Seen, room: Path) -> None:
    """Stop a sweep after its first run, in the middle of others, and let the same command go on."""
    words = ("sweep", "spec.yaml", "--out", "stopped", "--workers", "1")
    process = program(*words, room=room)
    while process.poll() is None and not list((room / "stopped").glob("*/done.json")):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    ended(process)
    ended(program(*words, room=room))
    seen.note("stopped", stored(room / "stopped"))
    seen.note("stopped/again", command(*words, room=room))


def _report(seen: Seen, room: Path) -> None:
    """Write pages and tables, after giving every row a time that is always the same."""
    give_times(room / "whole")
    for name, words in REPORTS.items():
        files = ("-o", f"{name}.html", "--markdown", f"{name}.md", "--latex", f"{name}.tex")
        seen.note(f"report/{name}/told", command("report", "whole", *files, *words, room=room))
        for path in sorted(room.glob(f"{name}.*")):
            text = page(path) if path.suffix == ".html" else path.read_text(encoding="utf-8")
            seen.note(f"report/{name}/{path.suffix}", text)


def give_times(folder: Path) -> None:
    """Put numbers that are always the same in the place of measured times."""
    for path in folder.glob("*/rows.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for number, row in enumerate(rows, 1):
            row.update({name: number + len(row["methods"]) / 8 for name in TIMES if name in row})
        text = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_text(text)
        done = path.with_name("done.json")
        done.write_text(json.dumps({**json.loads(done.read_text()), "bytes": len(text.encode()), "time": 0.0}))


def _statistics(seen: Seen, room: Path) -> None:
    """Compare methods over many settings, with numbers that were made up."""
    collect, compare_all = (find(f"rekindle.bench.paired:{name}") for name in ("collect", "compare_all"))
    results = collect(list(made_up()), "score")
    seen.note("statistics/results", results)
    for test in ("sign", "wilcoxon", "permutation"):
        for baseline in (None, "none"):
            compared = compare_all(results, baseline=baseline, test=test)
            seen.note(f"statistics/{test}/{baseline}", [dataclasses.asdict(one) for one in compared])
    for format in ("markdown", "latex"):
        results_table = find("rekindle.bench.tables:results_table")
        seen.note(f"statistics/table/{format}", results_table(results, format, baseline="none", digits=3))
        significance = find("rekindle.bench.tables:significance_table")
        seen.note(f"statistics/pairs/{format}", significance(compare_all(results), results.methods, format))
    seen.note("statistics/winners", str(find("rekindle.bench.winners:who_wins")(results)))
    _numbers(seen)


def made_up() -> Any:
    """Yield the last rows of 240 runs that nobody made."""
    random = np.random.default_rng(0)
    for number in range(240):
        method, seed, setting = ("none", "fire", "redo")[number % 3], number // 3 % 4, number // 12
        better = {"none": 0.0, "fire": 0.3, "redo": 0.1 * (setting % 5)}[method]
        row = {"key": str(number), "methods": method, "seed": seed, "score": better + random.normal() / 5}
        yield row | {"protocol": "p", "data": "d", "model": f"m{setting % 4}", "batch_size": 2 ** (setting % 5)}


def _numbers(seen: Seen) -> None:
    """Observe the single statistics on a few numbers."""
    random = np.random.default_rng(1)
    first, second = random.normal(size=9).tolist(), random.normal(0.3, size=9).tolist()
    many = random.normal(size=40).tolist()  # fewer are not resampled any more
    for name, given in (("spread", first), ("iqm", first), ("bootstrap_interval", many)):
        seen.note(f"statistics/{name}", find(f"rekindle.bench.statistics:{name}")(given))
    for name in ("sign_test", "wilcoxon_test", "permutation_test"):
        seen.note(f"statistics/{name}", find(f"rekindle.bench.statistics:{name}")(first, second))
    seen.note("statistics/holm", find("rekindle.bench.statistics:holm")([0.01, 0.04, 0.03, 0.5]))
