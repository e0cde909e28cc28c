"""The audit: weights alone against reading and one SVD per matrix, and all metrics together against each alone.

    python benchmarks/audit.py gpt2        # GPT-2 124M as a safetensors file; about 5 minutes
    python benchmarks/audit.py large       # a synthetic checkpoint of 4 GB; about 15 minutes, and 4 GB of disk
    python benchmarks/audit.py resnet18    # all metrics on 1,000 images; about 15 minutes

Each measurement is made in a process of its own, whose peak resident memory less that after loading the libraries is
`extra`; the process gives freed memory back at once (MALLOC_MMAP_THRESHOLD_). Rows go to benchmarks/rows/audit.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROWS = Path(__file__).parent / "rows" / "audit.jsonl"
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "2"}


def main() -> None:
    """Measure one case and append a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=("gpt2", "large", "resnet18"))
    parser.add_argument("--way", nargs=2, metavar=("WAY", "FILE"))
    given = parser.parse_args()
    if given.way:
        print(json.dumps(WAYS[given.way[0]](given.way[1])))
        return
    row = resnet18() if given.case == "resnet18" else stored(given.case)
    print(json.dumps(row))
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def stored(case: str) -> dict[str, object]:
    """Return the row of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        make(case, path)
        naive, ours = (measured(case, way, path) for way in ("naive", "audit"))
        size = path.stat().st_size
    largest = ours["largest_MB"]
    return {
        "case": case,
        "file_MB": round(size / 2**20),
        "largest_tensor_MB": round(largest, 1),
        "read_and_svd_s": round(naive["seconds"], 1),
        "audit_over_read_and_svd_time": round(ours["seconds"] / naive["seconds"], 2),
        "extra_MB": round(ours["extra_MB"], 1),
        "extra_over_largest": round(ours["extra_MB"] / largest, 2),
    }


def measured(case: str, way: str, path: Path) -> dict[str, float]:
    """Run one way in a process of its own."""
    command = [sys.executable, __file__, case, "--way", way, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | GIVE_BACK)
    return json.loads(done.stdout.splitlines()[-1])


def make(case: str, path: Path) -> None:
    """Write the checkpoint: GPT-2's own shapes, or 4 GB of matrices as in a model of one billion parameters."""
    import torch
    from safetensors.torch import save_file

    import rekindle as rk

    if case == "gpt2":
        save_file({name: tensor.clone() for name, tensor in rk.lab.models.GPT().state_dict().items()}, path)
        return
    draws = torch.Generator().manual_seed(0)
    shapes = {
        f"layers.{n}.{part}.weight": (2048, 2048 * (4 if part == "up" else 1)) for n in range(36) for part in PARTS
    }
    save_file({name: torch.randn(shape, generator=draws) * 0.02 for name, shape in shapes.items()}, path)


PARTS = ("q", "k", "v", "up")


def naive(path: str) -> None:
    """Read every tensor and take one SVD of every matrix."""
    import torch
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            tensor = file.get_tensor(name)
            if tensor.dim() == 2 and "wte" not in name and "wpe" not in name:
                torch.linalg.svdvals(tensor)


def ours(path: str) -> None:
    """Audit the file."""
    import rekindle as rk

    rk.audit(path)


def timed(way) -> dict[str, float]:
    """Return seconds and extra memory of a way, after the libraries were loaded and took their buffers."""
    import torch

    import rekindle as rk

    torch.set_num_threads(2)
    warm = torch.randn(1024, 1024)
    torch.linalg.svdvals(warm), warm @ warm
    rk.audit({"fc.weight": warm[:64, :64].clone()})
    del warm
    start, peak, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], resident())
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.perf_counter()
    way()
    seconds = time.perf_counter() - begun
    done.set()
    watcher.join()
    return {"seconds": seconds, "extra_MB": (peak[0] - start) / 2**20}


def resident() -> int:
    """Return the resident memory of this process without pages of files, in bytes."""
    with open("/proc/self/statm") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * 4096


def largest_of(path: str) -> float:
    """Return the size of the largest tensor in MB."""
    import math

    from rekindle.checkpoint.read import open_checkpoint

    return max(math.prod(shape) * 4 for shape in open_checkpoint(path)[1].values()) / 2**20


WAYS = {
    "naive": lambda path: timed(lambda: naive(path)) | {"largest_MB": largest_of(path)},
    "audit": lambda path: timed(lambda: ours(path)) | {"largest_MB": largest_of(path)},
}


def resnet18() -> dict[str, object]:
    """Return the row of a full audit: all metrics together, against the sum of each metric alone."""
    import torch

    import rekindle as rk

    torch.set_num_threads(2)
    torch.manual_seed(0)
    model = rk.lab.models.ResNet18()
    data = [(torch.randn(100, 3, 32, 32), torch.randint(0, 10, (100,))) for _ in range(10)]
    keys = [card.key for card in rk.list_metrics() if card.key != "trainability"]
    start = time.perf_counter()
    found = rk.audit(model, data, probe=False)
    together = time.perf_counter() - start
    alone = 0.0
    for key in keys:
        start = time.perf_counter()
        rk.audit(model, data, metrics=[key])
        alone += time.perf_counter() - start
    return {
        "case": "resnet18",
        "images": 1000,
        "metrics": len(found.readings),
        "together_s": round(together, 1),
        "each_alone_over_together": round(alone / together, 2),
    }


if __name__ == "__main__":
    main()
