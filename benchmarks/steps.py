"""Overhead of per-step methods and recyclers over a plain training step, and against the naive way.

    python benchmarks/steps.py --network mlp          # about 2 minutes; appends rows to benchmarks/rows/steps.jsonl
    python benchmarks/steps.py --network resnet18     # about 30 minutes; with --own about 10, with --memory about 4

A plain step (forward, backward, Adam; batch 256), the same with a Keeper, and the same with the naive per-layer loop
take turns in one run, step by step; the medians over the turns are compared. `--memory`: growth of the peak resident
memory over plain steps, each in a process of its own; `over_traced` is the growth over plain steps in a process
that has traced the model, which loads some 40 MB of torch.export's code. With `--own` only what is added to a plain
step is timed, of ours and of the naive way. Naive ways: a Python loop over layers with autograd for
penalties; for recyclers, hooks that keep whole activations and statistics of them after every step, without choosing
or recycling anything, so that this way does less than ours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import rekindle as rk

GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
ROWS = Path(__file__).parent / "rows" / "steps.jsonl"
METHODS = (
    "soft_rescale:strength=1e-3",
    "l2_init:strength=1e-4",
    "redo:period=100",
    "snr",
    "cbp",
    "parseval:strength=1e-4",
)
BOUNDS = {
    "soft_rescale": (3, 15),
    "l2_init": (3, 15),
    "redo": (3, 15),
    "snr": (3, 15),
    "cbp": (5, 25),
    "parseval": (10, 30),
}


def main() -> None:
    """Measure and append rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=("mlp", "resnet18"), default="mlp")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--turns", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--own", action="store_true", help="time what the method itself does; for slow networks")
    parser.add_argument("--memory", action="store_true", help="measure the extra memory instead of time")
    parser.add_argument("--peak", help="print the peak memory of this process with a method ('plain', 'traced')")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.peak:
        print(peak(given.network, given.peak))
        return
    turns = given.turns or (400 if given.network == "mlp" else 7)
    way = memory if given.memory else own_time if given.own else measure
    for row in way(given.network, given.precision, given.methods, turns, given.threads):
        print(json.dumps(row), flush=True)
        with ROWS.open("a") as file:
            file.write(json.dumps(row) + "\n")


def build(network: str) -> tuple[nn.Module, torch.Tensor]:
    """Return a network and a batch of 256."""
    torch.manual_seed(0)
    if network == "mlp":
        return rk.lab.models.MLP([784, 100, 100, 10]), torch.randn(256, 784)
    return rk.lab.models.ResNet18(), torch.randn(256, 3, 32, 32)


class Trainer:
    """One training with its own copy of the network."""

    def __init__(self, network: str, precision: str, method: str | None, naive: Callable[..., object] | None) -> None:
        self.net, self.x = build(network)
        self.y = torch.randint(0, 10, (256,), generator=torch.Generator().manual_seed(1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-4)
        self.keeper = rk.Keeper(self.net, self.optimizer, method, example=self.x[:2]) if method and not naive else None
        self.naive = naive(self.net, self.optimizer) if naive else None
        self.precision = precision
        self.times: list[float] = []

    def step(self) -> None:
        """Take one training step and note its time."""
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bfloat16"):
            loss = cross_entropy(self.net(self.x), self.y)
        if self.keeper is not None:
            loss = loss + self.keeper.penalty()
        if self.naive is not None:
            loss = loss + self.naive.penalty()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.keeper is not None:
            self.keeper.step()
        if self.naive is not None:
            self.naive.step()
        self.times.append(time.perf_counter() - start)


def measure(network: str, precision: str, methods, turns: int, threads: int):
    """Yield a row for each method; plain, with the method and naive take turns."""
    for method in methods:
        key = method.partition(":")[0]
        ways = {"plain": Trainer(network, precision, None, None), "ours": Trainer(network, precision, method, None)}
        ways["naive"] = Trainer(network, precision, None, NAIVE[key])
        for turn in range(turns + 2):
            for way in ways.values():
                way.step()
                if turn < 2:
                    way.times.clear()
        median = {name: statistics.median(way.times) for name, way in ways.items()}
        paired = statistics.median(a / b for a, b in zip(ways["ours"].times, ways["plain"].times, strict=True))
        row = {"network": network, "precision": precision, "method": method, "threads": threads, "turns": turns}
        row |= {
            "plain_ms": round(1000 * median["plain"], 3),
            "overhead_percent": round(100 * (median["ours"] / median["plain"] - 1), 1),
            "overhead_percent_of_pairs": round(100 * (paired - 1), 1),
            "bound_percent": BOUNDS[key][network == "mlp"],
            "naive_overhead_percent": round(100 * (median["naive"] / median["plain"] - 1), 1),
        }
        yield row | {"torch": torch.__version__}


def own_time(network: str, precision: str, methods, turns: int, threads: int):
    """Yield a row for each method: time in its own calls and hooks, and in the backward pass of its penalty.

    Where a plain step takes seconds, a difference of two steps is noise; what is added to it can be timed by itself.
    """
    plain = Trainer(network, precision, None, None)
    for _ in range(turns + 1):
        plain.step()
    step = statistics.median(plain.times[1:])
    for method in methods:
        key = method.partition(":")[0]
        ours = own(Trainer(network, precision, method, None), turns)
        naive = own(Trainer(network, precision, None, NAIVE[key]), turns)
        row = {"network": network, "precision": precision, "method": method, "threads": threads, "turns": turns}
        row |= {
            "plain_ms": round(1000 * step, 1),
            "own_ms": round(1000 * ours, 2),
            "own_percent": round(100 * ours / step, 2),
            "bound_percent": BOUNDS[key][network == "mlp"],
            "naive_own_percent": round(100 * naive / step, 2),
        }
        yield row | {"torch": torch.__version__}


def own(trainer: Trainer, turns: int) -> float:
    """Return the median time in what a training has beside plain steps."""
    added = trainer.keeper or trainer.naive
    clock = Clock(added, getattr(added, "_watch", added))
    for _ in range(turns + 1):
        trainer.step()
        clock.note()
    return statistics.median(clock.spent[1:]) + backward_of_penalty(trainer, added)


class Clock:
    """Adds up the time in the calls and in the hooks of what is added to plain steps, step by step."""

    def __init__(self, added, hooks) -> None:
        self.spent: list[float] = []
        self.now = 0.0
        for owner, name in ((added, "penalty"), (added, "step"), (hooks, "_add")):
            if hasattr(owner, name):
                setattr(owner, name, self.timed(getattr(owner, name)))

    def timed(self, call):
        """Return the call with its time noted."""

        def run(*args, **kwargs):
            start = time.perf_counter()
            result = call(*args, **kwargs)
            self.now += time.perf_counter() - start
            return result

        return run

    def note(self) -> None:
        """End a step."""
        self.spent.append(self.now)
        self.now = 0.0


def backward_of_penalty(trainer: Trainer, added) -> float:
    """Return the median time of the penalty's backward pass alone, 0 without one."""
    parameters = list(trainer.net.parameters())
    times = []
    for _ in range(5):
        penalty = added.penalty()
        if not isinstance(penalty, torch.Tensor):
            return 0.0
        start = time.perf_counter()
        torch.autograd.grad(penalty, parameters, allow_unused=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def memory(network: str, precision: str, methods, turns: int, threads: int):
    """Yield a row for each method: growth of the peak over plain steps, and over plain steps after a trace."""
    base = {way: peak_of_process(network, way) for way in ("plain", "traced")}
    for method in methods:
        peak_MB = peak_of_process(network, method)
        extra = {"plain_MB": round(base["plain"]), "extra_MB": round(peak_MB - base["plain"], 1)}
        extra |= {"extra_MB_over_traced": round(peak_MB - base["traced"], 1), "bound_MB": 100}
        yield {"network": network, "method": method, "threads": threads, **extra, "torch": torch.__version__}


def peak_of_process(network: str, method: str) -> float:
    """Return the peak memory in MB of a fresh process that trains with a method."""
    command = [sys.executable, __file__, "--network", network, "--peak", method]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | GIVE_BACK)
    return float(done.stdout)


def peak(network: str, method: str) -> float:
    """Return the peak resident memory of three steps in MB.

    Not `ru_maxrss`: a process inherits that from the one that started it.
    """
    given = None if method in ("plain", "traced") else method.replace("period=100", "period=2")
    trainer = Trainer(network, "float32", given, None)
    if method == "traced":
        rk.trace(trainer.net, trainer.x[:2])
    for _ in range(3):
        trainer.step()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


class NaiveRescale:
    """Algorithm 1 as a Python loop over layers."""

    def __init__(self, net, optimizer) -> None:
        self.layers = [m for m in net.modules() if getattr(m, "weight", None) is not None]
        self.start = [m.weight.norm().item() for m in self.layers]

    def penalty(self):
        """Return nothing."""
        return 0.0

    def step(self) -> None:
        """Scale layer by layer."""
        total = 1.0
        with torch.no_grad():
            for module, start in zip(self.layers, self.start, strict=True):
                norm = module.weight.norm().item()
                factor = (1e-3 * start + (1 - 1e-3) * norm) / norm
                total *= factor
                module.weight.mul_(factor)
                if module.bias is not None:
                    module.bias.mul_(total)


class NaiveInit:
    """Distance to the initial weights by autograd."""

    def __init__(self, net, optimizer) -> None:
        self.pairs = [(p, p.detach().clone()) for p in net.parameters()]

    def penalty(self):
        """Return the sum over parameters."""
        return 0.5e-4 * sum(((p - start) ** 2).sum() for p, start in self.pairs)

    def step(self) -> None:
        """Do nothing."""


class NaiveParseval:
    """|W W^T - I|^2 by autograd."""

    def __init__(self, net, optimizer) -> None:
        self.weights = [p for p in net.parameters() if p.dim() > 1]

    def penalty(self):
        """Return the sum over weights."""
        total = 0.0
        for weight in self.weights:
            w = weight.flatten(1)
            total = total + ((w @ w.T - torch.eye(len(w))) ** 2).sum()
        return 1e-4 * total

    def step(self) -> None:
        """Do nothing."""


class NaiveUnits:
    """Hooks that keep whole activations, and statistics of them after every step."""

    def __init__(self, net, optimizer) -> None:
        self.kept: list[torch.Tensor] = []
        self.average: list[torch.Tensor] = []
        for module in net.modules():
            if isinstance(module, (nn.ReLU, nn.BatchNorm2d)):
                module.register_forward_hook(lambda module, args, out: self._add(out))

    def _add(self, out: torch.Tensor) -> None:
        self.kept.append(out.detach().relu())

    def penalty(self):
        """Return nothing."""
        return 0.0

    def step(self) -> None:
        """Mean |activation| and share of zeros per unit."""
        for number, kept in enumerate(self.kept):
            flat = kept.transpose(0, 1).flatten(1)
            seen = flat.abs().mean(1) + (flat == 0).float().mean(1)
            if number < len(self.average):
                self.average[number] = 0.99 * self.average[number] + 0.01 * seen
            else:
                self.average.append(seen)
        self.kept.clear()


NAIVE = {
    "soft_rescale": NaiveRescale,
    "l2_init": NaiveInit,
    "parseval": NaiveParseval,
    "redo": NaiveUnits,
    "snr": NaiveUnits,
    "cbp": NaiveUnits,
}

if __name__ == "__main__":
    main()
