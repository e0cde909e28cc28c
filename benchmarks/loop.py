"""The training loop, stacked seeds, sweeps and the start of the program, each against the plain way.

    python benchmarks/loop.py cnn         # about 3 minutes; appends rows to benchmarks/rows/loop.jsonl
    python benchmarks/loop.py resnet18    # about 20 minutes; without AMX bfloat16 alone is slower than float32
    python benchmarks/loop.py batches     # about 10 seconds
    python benchmarks/loop.py stacked     # about 8 minutes
    python benchmarks/loop.py sweep       # about 1 minute
    python benchmarks/loop.py beginnings  # about 1 minute
    python benchmarks/loop.py start       # about 2 minutes

- cnn, resnet18: images per second of our loop (data in memory, channels_last, fused Adam) and of a plain PyTorch
  float32 loop over a DataLoader (TensorDataset, shuffled, 0 or 2 workers that stay alive), 32x32 images, batch 256. All
  ways train their own copy of the same network on the same images, one pass each in turn. The ratio is that to the
  faster of the plain ways. All see as many steps; accuracy is on other images.
- batches: taking batches of 256 out of 10,000 stored images, by `Examples.take` and by brackets, on one thread.
- stacked: 20 seeds of the synthetic MLP 128-32-32-8, full batch of 256, `rounds`, on one thread: `execute` one after
  the other, `run_stacked`, and bare steps one after the other (forward, backward, SGD, nothing else), processor time.
- sweep: what a run costs in a sweep beyond its own training, start of the worker included.
- beginnings: a sweep over one-shot methods, with what they have in common trained once, against each run alone.
- start: `import rekindle` and `rekindle --help` in fresh processes, beyond `import torch`.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import rekindle as rk
from rekindle.lab.runs.engines.local import LocalEngine
from rekindle.lab.runs.execute import run_sweep
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.stacked import run_stacked
from rekindle.lab.runs.store import Store
from rekindle.lab.runs.training_run import stages_of, train_run
from rekindle.training.evaluation import evaluate
from rekindle.training.examples import Examples
from rekindle.training.loop import train
from rekindle.training.optimizers import optimizer
from rekindle.training.progress import StageProgress, TrainConfig
from rekindle.training.stage import Stage

ROWS = Path(__file__).parent / "rows" / "loop.jsonl"
BATCH = 256
WORKERS = (0, 2)


def main() -> None:
    """Measure and append rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=tuple(MEASURE))
    parser.add_argument("--turns", type=int, help="repeats of which medians are taken")
    parser.add_argument("--threads", type=int, default=2, help="for cnn and resnet18; the others take one")
    parser.add_argument("--batches", type=int, help="for cnn and resnet18: steps of one turn")
    parser.add_argument("--seeds", type=int, default=20, help="for stacked")
    parser.add_argument("--steps", type=int, default=200, help="for stacked: of each round")
    parser.add_argument("--runs", type=int, default=20, help="for sweep")
    given = parser.parse_args()
    for row in MEASURE[given.what](given):
        row = {"what": given.what, **row, "torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
        print(json.dumps(row), flush=True)
        with ROWS.open("a") as file:
            file.write(json.dumps(row) + "\n")


def take_turns(ways: dict[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """Return what each way measures, turn by turn, after one turn to get warm."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            value = way()
            if turn:
                taken[name].append(value)
    return taken


def medians(taken: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each way."""
    return {name: statistics.median(values) for name, values in taken.items()}


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how long something takes."""
    start = clock()
    work()
    return clock() - start


# --- images per second ---


def images(count: int, seed: int) -> Examples:
    """Return images of ten classes: a coarse pattern for each class under strong noise."""
    patterns = torch.randn(10, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=random)
    inputs = nn.functional.interpolate(patterns, 32)[labels] * 0.4
    return Examples(inputs + torch.randn(count, 3, 32, 32, generator=random), labels)


class Ours:
    """Our loop on its own copy of the network."""

    def __init__(self, net: nn.Module, data: Examples, test: Examples, precision: str) -> None:
        self.net = copy.deepcopy(net).to(memory_format=torch.channels_last)
        self.optimizer = optimizer("adam:lr=1e-3", self.net, data.inputs[:2])
        self.stage = Stage("all", data, test.take(slice(1)), epochs=1)
        self.config, self.turn = TrainConfig(batch_size=BATCH, precision=precision), 0

    def __call__(self) -> float:
        """Train one pass and return images per second, without the evaluation at its end."""
        place = StageProgress()
        self.turn += 1
        train(self.net, self.optimizer, self.stage, self.config, place, seed=self.turn)
        return len(self.stage.train) / place.seconds


class Plain:
    """A loop as in a tutorial."""

    def __init__(self, net: nn.Module, data: Examples, workers: int) -> None:
        self.net = copy.deepcopy(net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        pairs = TensorDataset(data.inputs, data.labels)
        self.loader = DataLoader(
            pairs, BATCH, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=workers > 0
        )
        self.count = len(data)

    def __call__(self) -> float:
        """Train one pass and return images per second."""
        self.net.train()
        return self.count / seconds(self.one_pass)

    def one_pass(self) -> None:
        """Train on every image once."""
        total = 0.0
        for inputs, labels in self.loader:
            loss = cross_entropy(self.net(inputs), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()


def measure_loop(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the row of one network."""
    network = given.what
    torch.set_num_threads(given.threads)
    turns = given.turns or (15 if network == "cnn" else 5)
    batches = given.batches or (16 if network == "cnn" else 3)
    precision, bound = ("float32", 1.3) if network == "cnn" else ("bfloat16", 1.8)
    data, test = images(batches * BATCH, seed=1), images(2048 if network == "cnn" else 512, seed=2)
    torch.manual_seed(0)
    net = rk.lab.models.CNN() if network == "cnn" else rk.lab.models.ResNet18()
    ways: dict[str, Any] = {"ours": Ours(net, data, test, precision)}
    if precision != "float32":
        ways["ours_float32"] = Ours(net, data, test, "float32")
    ways |= {f"plain_{workers}_workers": Plain(net, data, workers) for workers in WORKERS}
    speed = medians(take_turns(ways, turns))
    fastest = max((name for name in ways if name.startswith("plain")), key=lambda name: speed[name])
    row: dict[str, Any] = {"precision": precision, "batch_size": BATCH, "threads": given.threads, "turns": turns}
    row |= {"steps": (turns + 1) * batches, "test_images": len(test), "amx": torch.cpu._is_amx_tile_supported()}
    row |= {f"{name}_images_per_s": round(value, 1) for name, value in speed.items()}
    row |= {f"{name}_accuracy": round(evaluate(way.net, test)[0], 4) for name, way in ways.items()}
    yield row | judged(speed["ours"] / speed[fastest], at_least=bound) | {"against": fastest}


# --- batches ---

STORED = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


def measure_batches(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for the images of each data set."""
    torch.set_num_threads(1)
    turns = given.turns or 15
    for name, shape in STORED.items():
        random = torch.Generator().manual_seed(0)
        stored = torch.randint(256, (10_000, *shape), dtype=torch.uint8, generator=random)
        examples = Examples(stored, torch.zeros(len(stored), dtype=torch.long))
        order = torch.randperm(len(stored), generator=random)[: 39 * BATCH].view(39, BATCH)
        ways = {
            "ours": lambda own=examples, order=order: seconds(lambda: [own.take(one) for one in order]),
            "brackets": lambda own=examples, order=order: seconds(
                lambda: [(own.inputs[one], own.labels[one]) for one in order]
            ),
        }
        taken = medians(take_turns(ways, turns))
        row: dict[str, Any] = {"images_of": name, "batch_size": BATCH, "threads": 1, "turns": turns}
        row |= {f"{way}_ms_per_batch": round(1000 * value / len(order), 4) for way, value in taken.items()}
        yield row | judged(taken["brackets"] / taken["ours"], at_least=1.0)


# --- seeds as one ---


def bare_steps(runs: list[Run], rounds: int, steps: int) -> None:
    """Train the same networks one after the other with nothing around: no evaluation, no boundary, no method."""
    for run in runs:
        stage = stages_of(run)[0][0]
        net = rk.lab.models.MLP([128, 32, 32, 8])
        sgd = optimizer(run.optimizer, net, stage.train.inputs[:2])
        for _ in range(rounds * steps):
            loss = cross_entropy(net(stage.train.inputs), stage.train.labels)
            sgd.zero_grad()
            loss.backward()
            sgd.step()


def measure_stacked(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row without methods and one with a method at each boundary."""
    torch.set_num_threads(1)
    turns, clock = given.turns or 3, time.process_time
    for methods in ("none", "fire"):
        spec = {"protocol": f"rounds:steps={given.steps}", "data": "synthetic", "model": "mlp_synthetic"}
        spec |= {"optimizer": "sgd:lr=0.01,momentum=0.9,weight_decay=1e-4", "methods": methods}
        runs = [Run.from_dict({**spec, "seed": seed}) for seed in range(given.seeds)]
        rows: dict[str, Any] = {}

        def alone(runs: list[Run] = runs, rows: dict[str, Any] = rows) -> None:
            rows["alone"] = [row for run in runs for row in train_run(run, None)]

        def together(runs: list[Run] = runs, rows: dict[str, Any] = rows) -> None:
            rows["stacked"] = [row for own in run_stacked(runs).values() for row in own]

        ways = {"alone": alone, "stacked": together, "bare": lambda runs=runs: bare_steps(runs, 9, given.steps)}
        timed = {name: lambda way=way: seconds(way, clock) for name, way in ways.items()}
        taken = medians(take_turns(timed, turns))
        row = {**spec, "seeds": given.seeds, "batch_size": 256, "threads": 1, "turns": turns}
        row |= {f"{name}_s": round(value, 2) for name, value in taken.items()}
        row["over_bare_steps"] = round(taken["bare"] / taken["stacked"], 3)
        row |= difference(rows["alone"], rows["stacked"])
        yield row | judged(taken["alone"] / taken["stacked"], at_least=3.0)


def difference(alone: list[dict[str, Any]], stacked: list[dict[str, Any]]) -> dict[str, float]:
    """Return the largest difference between the rows of both ways, and how well both learned."""
    pairs = list(zip(alone, stacked, strict=True))
    apart = {name: max(abs(a[name] - b[name]) for a, b in pairs) for name in ("accuracy", "loss")}
    return {
        "largest_difference_of_accuracy": round(apart["accuracy"], 6),
        "largest_difference_of_loss": float(f"{apart['loss']:.2e}"),
        "alone_accuracy": final_accuracy(alone),
        "stacked_accuracy": final_accuracy(stacked),
    }


def final_accuracy(rows: list[dict[str, Any]]) -> float:
    """Return the mean accuracy at the end of the last round."""
    last = max(row["stage"] for row in rows)
    return round(statistics.mean(row["accuracy"] for row in rows if row["stage"] == last and row["event"] == "end"), 4)


# --- sweeps and start ---


def measure_sweep(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what a run costs in a sweep beyond its training in this process."""
    torch.set_num_threads(1)
    spec = {"protocol": "warm_start:before=2,after=2", "data": "digits", "methods": "fire"}
    runs = [Run.from_dict({**spec, "seed": seed}) for seed in range(given.runs)]

    def sweep() -> None:
        with tempfile.TemporaryDirectory() as folder:
            run_sweep(Store(Path(folder)), runs, LocalEngine(workers=1, free_memory=0.0))

    ways = {
        "sweep": lambda: seconds(sweep),
        "training": lambda: seconds(lambda: [train_run(run, None) for run in runs]),
    }
    turns = given.turns or 5
    taken = medians(take_turns(ways, turns))
    row = {**spec, "runs": given.runs, "workers": 1, "threads": 1, "turns": turns}
    row["training_s_per_run"] = round(taken["training"] / given.runs, 3)
    yield row | judged((taken["sweep"] - taken["training"]) / given.runs, below=1.0, name="overhead_s_per_run")


TREATED = ("none", "fresh", "fire", "shrink_perturb", "dash")


def measure_beginnings(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield how much faster a sweep over one-shot methods is that trains their common beginning once."""
    spec = {"protocol": "warm_start", "data": "digits", "evaluate_each": 100}  # F: 10% for 1000 epochs, all for 100
    runs = [Run(**spec, methods=one, seed=seed) for one in TREATED for seed in range(3)]
    engine = LocalEngine(workers=1, free_memory=0.0)

    def sweep(shared: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder))
            if shared:
                run_sweep(store, runs, engine)
            else:
                engine.run_all(store, runs, listen=lambda event: None)

    ways = {"shared": lambda: seconds(lambda: sweep(True)), "apart": lambda: seconds(lambda: sweep(False))}
    turns = given.turns or 3
    taken = medians(take_turns(ways, turns))
    row = {**spec, "methods": "|".join(TREATED), "runs": len(runs), "workers": 1, "threads": 1, "turns": turns}
    row["shared_s"], row["apart_s"] = round(taken["shared"], 2), round(taken["apart"], 2)
    yield row | judged(taken["apart"] / taken["shared"], at_least=1.0)


START = {
    "torch": "import torch",
    "import": "import torch, rekindle",
    "first_name": "import torch, rekindle; rekindle.trace",
    "help": "import sys; sys.argv = ['rekindle', '--help']; from rekindle.cli import main; main()",
}
LOADED = "import atexit, sys; atexit.register(lambda: sys.stderr.write(f'torch={{\"torch\" in sys.modules}}')); {}"


def measure_start(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for the import and one for the help."""
    turns = given.turns or 9

    def fresh(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    taken = take_turns({name: lambda code=code: seconds(lambda: fresh(code)) for name, code in START.items()}, turns)
    middle = medians(taken)
    loads = fresh(LOADED.format(START["help"])).stderr.endswith("torch=True")
    row: dict[str, Any] = {"turns": turns, "import_torch_s": round(middle["torch"], 3)}
    first_name = {"with_first_name_s": round(middle["first_name"] - middle["torch"], 3)}
    ours = judged(middle["import"] - middle["torch"], below=0.5, name="beyond_torch_s")
    yield row | {"program": "import rekindle"} | first_name | ours
    help_ = judged(middle["help"] - middle["torch"], below=0.5, name="beyond_torch_s")
    yield row | {"program": "rekindle --help", "loads_torch": loads} | help_


def judged(
    value: float, *, at_least: float | None = None, below: float | None = None, name: str = "ratio"
) -> dict[str, Any]:
    """Return a value with its bound and whether it keeps to it; a row that misses says so."""
    kept = value >= at_least if at_least is not None else value < (below or 0.0)
    return {name: round(value, 3), "bound": at_least if at_least is not None else below, "within_bound": kept}


MEASURE: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "cnn": measure_loop,
    "resnet18": measure_loop,
    "batches": measure_batches,
    "stacked": measure_stacked,
    "sweep": measure_sweep,
    "beginnings": measure_beginnings,
    "start": measure_start,
}

if __name__ == "__main__":
    main()
