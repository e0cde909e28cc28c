"""DASH against one plain pass over the same data: `python benchmarks/dash.py` (about 3 minutes, one thread).

Plain pass (forward and backward in training mode) and the whole of `rk.dash_` take turns on ResNet-18, 32x32 images;
medians of processor time are kept, in rows/dash.jsonl. The graph is traced beforehand.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch.nn.functional import cross_entropy

import rekindle as rk

ROWS = Path(__file__).parent / "rows" / "dash.jsonl"
BATCHES, SIZE, REPEATS = 6, 64, 5


def main() -> None:
    """Measure and append one row."""
    torch.set_num_threads(1)
    model = rk.lab.models.ResNet18()
    noise = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(SIZE, 3, 32, 32, generator=noise), torch.randint(10, (SIZE,), generator=noise))
        for _ in range(BATCHES)
    ]
    graph = rk.trace(model, data[0][0][:2])

    def plain() -> None:
        for inputs, labels in data:
            model.zero_grad()
            cross_entropy(model(inputs), labels).backward()

    def dash() -> None:
        rk.dash_(model, data=data, graph=graph).undo()

    times: dict[str, list[float]] = {"plain": [], "dash": []}
    plain()
    for _ in range(REPEATS):
        for name, run in (("plain", plain), ("dash", dash)):
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    row = {
        "network": "resnet18",
        "batches": BATCHES,
        "batch_size": SIZE,
        "threads": 1,
        "repeats": REPEATS,
        "plain_s": round(statistics.median(times["plain"]), 2),
        "dash_over_plain_time": round(statistics.median(times["dash"]) / statistics.median(times["plain"]), 3),
        "torch": torch.__version__,
    }
    print(json.dumps(row))
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
