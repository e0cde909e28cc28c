"""Extra memory of a treatment, as a multiple of the largest weight: `python benchmarks/memory.py` (about 2 minutes).

Peak resident memory of a fresh process during `rk.apply_(..., undo=False)`, less what model, graph and the libraries'
own buffers took before (a product, a factorization and an eigendecomposition are run first). The process gives freed
memory back at once (MALLOC_MMAP_THRESHOLD_), so that what is in use is counted and not what the allocator keeps.
Rows go to benchmarks/rows/memory.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

ROWS = Path(__file__).parent / "rows" / "memory.jsonl"
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
CASES = [("fire:attention=all", "vgg16"), ("fire:attention=all", "gpt2"), ("fire:attention=all", "resnet18")]


def main() -> None:
    """Measure each case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(*given.one)))
        return
    for case in CASES:
        command = [sys.executable, __file__, "--one", *case]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | GIVE_BACK)
        print(done.stdout.strip(), flush=True)
        with ROWS.open("a") as file:
            file.write(done.stdout.strip() + "\n")


def measure(spec: str, network: str) -> dict[str, object]:
    """Return one row."""
    import torch

    import rekindle as rk

    torch.set_num_threads(2)
    builds = {
        "vgg16": (lambda: rk.lab.models.VGG16(200, image_size=64), torch.zeros(1, 3, 64, 64)),
        "gpt2": (rk.lab.models.GPT, torch.zeros(1, 8, dtype=torch.long)),
        "resnet18": (rk.lab.models.ResNet18, torch.zeros(1, 3, 32, 32)),
    }
    build, example = builds[network]
    model = build()
    graph = rk.trace(model, example)
    edited = {edit.tensor for edit in rk.plan(spec, model, graph=graph).edits}
    largest = max(p.numel() * 4 for n, p in model.named_parameters() if n in edited)
    warm = torch.randn(1024, 1024)  # load what is loaded late, and let the libraries take their buffers
    torch.linalg.eigh(warm @ warm), torch.linalg.inv(warm)
    rk.apply_(spec, torch.nn.Linear(512, 512), example=torch.zeros(1, 512), undo=False)
    del warm
    start, peak, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], resident())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    rk.apply_(spec, model, graph=graph, undo=False)
    done.set()
    watcher.join()
    extra = peak[0] - start
    return {
        "method": spec,
        "network": network,
        "largest_weight_MB": round(largest / 2**20, 1),
        "model_MB": round(sum(p.numel() * 4 for p in model.parameters()) / 2**20),
        "extra_MB": round(extra / 2**20, 1),
        "extra_over_largest": round(extra / largest, 2),
        "torch": torch.__version__,
    }


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


if __name__ == "__main__":
    main()
