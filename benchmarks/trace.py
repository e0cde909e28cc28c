"""Tracing: time beside `torch.export` alone, extra memory, growth with depth. Rows go to rows/trace.jsonl.

    python benchmarks/trace.py            # about 3 minutes

Export is the part that is not ours; the ratio says what finding the units adds to it, and what it takes to find a
trace again (`found_over_export`). Memory is what the resident memory of a fresh process rises by at its peak during the
trace, beside what the model, the libraries and a first export took. Depth doubles; the growth is
log2(seconds at the depth / seconds at half of it): 1 is linear, 2 quadratic. CPU time of one thread; `code` is the
commit whose library was measured, so that old and new can be told apart: run it with PYTHONPATH set to the source of
another checkout to measure that one.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import rekindle as rk
from rekindle.graph.export import export
from rekindle.graph.scaling.solve import prepare, wishes_of

ROWS = Path(__file__).parent / "rows" / "trace.jsonl"
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
REPEATS = 5
PATIENCE = 40.0  # seconds: what took longer is not tried at twice the depth
CASES: dict[str, tuple[Callable[[], Any], Tensor]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), torch.zeros(1, 784)),
    "resnet18": (rk.lab.models.ResNet18, torch.zeros(1, 3, 32, 32)),
    "resnet50": (rk.lab.models.ResNet50, torch.zeros(1, 3, 224, 224)),
    "gpt2": (rk.lab.models.GPT, torch.zeros(1, 32, dtype=torch.long)),
}


class Block(nn.Module):
    """A residual block with a normalization in front."""

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Add to the stream."""
        out: Tensor = x + self.down(self.up(self.norm(x)).relu())
        return out


def layers(depth: int) -> nn.Module:
    """Return a chain of linear layers."""
    return nn.Sequential(*[part for _ in range(depth) for part in (nn.Linear(8, 8), nn.ReLU())], nn.Linear(8, 2))


def blocks(depth: int) -> nn.Module:
    """Return a chain of residual blocks."""
    return nn.Sequential(*[Block(8) for _ in range(depth)], nn.Linear(8, 2))


def seconds(run: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def fresh(model: nn.Module, example: Tensor) -> Any:
    """Trace without looking for a former trace."""
    try:
        return rk.trace(model, example, fresh=True)
    except TypeError:  # the code before there was a cache
        return rk.trace(model, example)


def time_rows() -> None:
    """Measure time beside export's."""
    for name, (build, example) in CASES.items():
        model = build()
        export(model, example), fresh(model, example), rk.trace(model, example)
        ways = (lambda: export(model, example), lambda: fresh(model, example), lambda: rk.trace(model, example))  # noqa: B023
        turns = [[seconds(way) for way in ways] for _ in range(REPEATS)]
        exported, traced, found = (statistics.median(column) for column in zip(*turns, strict=True))
        ratios = {"trace_over_export": traced / exported, "found_over_export": found / exported}
        keep({"network": name, "repeats": REPEATS, **{key: round(ratio, 3) for key, ratio in ratios.items()}})


def memory_row(name: str) -> None:
    """Measure what a trace takes beside what is there already."""
    build, example = CASES[name]
    model = build()
    export(model, example), gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    graph = fresh(model, example)
    peak, after = _status("VmHWM") - before, _status("VmRSS") - before
    keep({"network": name, "groups": len(graph.groups), "peak_extra_mb": round(peak), "kept_mb": round(after)})


def _status(key: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


def depth_rows() -> None:
    """Measure growth with depth."""
    example = torch.randn(2, 8)
    for name, build, deepest in (("layers", layers, 1000), ("blocks", blocks, 200)):
        last: dict[str, float] = {}
        rk.trace(build(8), example).verify(build(8), example)  # what is loaded late
        for depth in (deepest // 8, deepest // 4, deepest // 2, deepest):
            model = build(depth)
            graph = fresh(model, example)  # reading its scale the first time is part of what is measured
            ways: dict[str, Callable[[], object]] = {
                "export": lambda: export(model, example),  # noqa: B023
                "trace": lambda: fresh(model, example),  # noqa: B023
                "scale": lambda: prepare(graph, wishes_of(graph)),  # noqa: B023
                "verify": lambda: graph.verify(model, example),  # noqa: B023
            }
            for way, run in ways.items():
                if last.get(way, 0.0) > PATIENCE:
                    continue
                took = seconds(run)
                growth = round(math.log2(took / last[way]), 2) if last.get(way) else None
                keep({"network": name, "depth": depth, "step": way, "cpu_s": round(took, 2), "growth": growth})
                last[way] = took


def keep(row: dict[str, object]) -> None:
    """Print a row and append it."""
    here = Path(rk.__file__).parent
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
    row |= {"torch": torch.__version__, "code": told.stdout.strip()}
    print(json.dumps(row), flush=True)
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def main() -> None:
    """Measure everything, memory in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.memory:
        memory_row(given.memory)
        return
    time_rows()
    for name in CASES:
        subprocess.run([sys.executable, __file__, "--memory", name], check=True, env=os.environ | GIVE_BACK)
    depth_rows()


if __name__ == "__main__":
    main()
