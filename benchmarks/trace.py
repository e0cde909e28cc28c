"""Tracing against `torch.export` alone: `python benchmarks/trace.py` (about a minute). Rows go to rows/trace.jsonl.

Export is the part that is not ours; the ratio says what finding the units adds to it.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import rekindle as rk
from rekindle.graph.export import export

ROWS = Path(__file__).parent / "rows" / "trace.jsonl"
REPEATS = 3
CASES: dict[str, tuple[Callable[[], Any], torch.Tensor]] = {
    "resnet18": (rk.lab.models.ResNet18, torch.zeros(1, 3, 32, 32)),
    "resnet50": (rk.lab.models.ResNet50, torch.zeros(1, 3, 224, 224)),
    "gpt2": (rk.lab.models.GPT, torch.zeros(1, 32, dtype=torch.long)),
}


def seconds(run: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Measure and append a row for each network."""
    for name, (build, example) in CASES.items():
        model = build()
        export(model, example)
        pairs = [
            (seconds(lambda: export(model, example)), seconds(lambda: rk.trace(model, example)))  # noqa: B023
            for _ in range(REPEATS)
        ]
        exported, traced = (statistics.median(column) for column in zip(*pairs, strict=True))
        row = {"network": name, "repeats": REPEATS, "trace_s": round(traced, 2)}
        row |= {"trace_over_export_time": round(traced / exported, 2), "torch": torch.__version__}
        print(json.dumps(row), flush=True)
        with ROWS.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
