"""Language models: our loop against a plain one, and what FIRE costs in steps of training.

    python benchmarks/language.py tokens          # about 2 minutes; appends rows to benchmarks/rows/language.jsonl
    python benchmarks/language.py fire            # about 4 minutes, 8 GB

- tokens: tokens per second of our loop (`training.loop.train` on `Tokens`, clipped, with E.2's schedule) and of a plain
  loop as people write it (windows stacked from the same memory-mapped file, AdamW, clipped), each on its own copy of
  the same GPT, in turns, on one thread.
- fire: `rk.fire_` on a GPT of 124M parameters, as a user calls it, traced before and not, in units of one training step
  of that model: 12 windows of 1,024 tokens, and 480 of them as in FIRE's E.2 (40 times as much, computed from it).
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import rekindle as rk
from rekindle.lab.models import GPT
from rekindle.training.loop import train
from rekindle.training.optimizers import optimizer
from rekindle.training.progress import StageProgress, TrainConfig
from rekindle.training.schedules import Linear
from rekindle.training.stage import Stage
from rekindle.training.tokens import Tokens

ROWS = Path(__file__).parent / "rows" / "language.jsonl"
ADAMW = "adamw:lr=6e-4,betas=0.9|0.95,weight_decay=0.1,decay=matrices"


def main() -> None:
    """Measure and append rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=tuple(MEASURE))
    parser.add_argument("--turns", type=int, default=5, help="repeats of which medians are taken")
    parser.add_argument("--steps", type=int, default=100, help="for tokens: steps of one turn")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for row in MEASURE[given.what](given):
        row = {"what": given.what, **row, "threads": given.threads, "turns": given.turns}
        row |= {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
        row = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}
        print(json.dumps(row), flush=True)
        with ROWS.open("a") as file:
            file.write(json.dumps(row) + "\n")


def stream(folder: str, vocabulary: int, count: int = 1_000_000) -> np.ndarray:
    """Return random tokens in a file."""
    path = Path(folder) / "train.bin"
    np.random.default_rng(0).integers(0, vocabulary, count).astype(np.uint16).tofile(path)
    return np.memmap(path, dtype=np.uint16, mode="r")


def tokens(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield how many tokens a second both loops learn from, for the network of the cpu preset and a larger one."""
    for name, shape, context, batch in (
        ("gpt 3x96", {"vocabulary": 256, "dim": 96, "depth": 3, "heads": 4}, 64, 16),
        ("gpt 6x384", {"vocabulary": 4096, "dim": 384, "depth": 6, "heads": 6}, 256, 8),
    ):
        with tempfile.TemporaryDirectory() as folder:
            data = stream(folder, shape["vocabulary"])
            torch.manual_seed(0)
            net = GPT(context=context, bias=False, **shape)
            steps = given.steps if context == 64 else max(5, given.steps // 20)
            ours, plain = Ours(copy.deepcopy(net), data, context, batch, steps), copy.deepcopy(net)
            taken: dict[str, list[float]] = {"ours": [], "plain": []}
            for turn in range(given.turns + 1):
                for way, seconds in (("ours", ours(turn)), ("plain", plain_loop(plain, data, context, batch, steps))):
                    taken[way] += [steps * batch * context / seconds] if turn else []
        ratio = statistics.median(a / b for a, b in zip(taken["ours"], taken["plain"], strict=True))
        yield {"network": name, "context": context, "batch": batch, "steps": steps, "ours_over_plain": ratio} | {
            f"tokens_a_second_{way}": statistics.median(values) for way, values in taken.items()
        }


class Ours:
    """Our loop on its own copy of the network."""

    def __init__(self, net: nn.Module, data: np.ndarray, context: int, batch: int, steps: int) -> None:
        self.net, self.optimizer = net, optimizer(ADAMW, net, torch.zeros(1, context, dtype=torch.long))
        text = Tokens({"text": data}, context, windows=1)
        self.stage = Stage("text", text, text, steps=steps, epoch_steps=steps, schedule=Linear(), warmup=10)
        self.config = TrainConfig(batch_size=batch, clip=1.0)

    def __call__(self, turn: int) -> float:
        """Train and return the seconds of all steps, without the evaluation at the end."""
        progress = StageProgress()
        train(self.net, self.optimizer, self.stage, self.config, progress, seed=turn)
        return progress.seconds


def plain_loop(net: nn.Module, data: np.ndarray, context: int, batch: int, steps: int) -> float:
    """Train as people write it, and return the seconds."""
    matrices = [p for p in net.parameters() if p.ndim > 1]
    vectors = [p for p in net.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
    net.train()
    begun = time.perf_counter()
    for step in range(steps):
        rate = 6e-4 * min(1.0, (step + 1) / 10)
        for group in adamw.param_groups:
            group["lr"] = rate
        inputs, labels = windows(data, context, batch)
        loss = cross_entropy(net(inputs).flatten(0, 1), labels.flatten())
        adamw.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        adamw.step()
    return time.perf_counter() - begun


def windows(data: np.ndarray, context: int, batch: int) -> tuple[Tensor, Tensor]:
    """Return random windows of a stream, and the same one token later."""
    starts = torch.randint(len(data) - context, (batch,)).tolist()
    inputs = torch.stack([torch.from_numpy(data[i : i + context].astype(np.int64)) for i in starts])
    labels = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + context].astype(np.int64)) for i in starts])
    return inputs, labels


def fire(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what `fire_` costs on 124M parameters, in steps of training."""
    torch.manual_seed(0)
    net = GPT(bias=False)
    example = torch.randint(50304, (1, 64))
    adamw = optimizer(ADAMW, net, example)
    batch = torch.randint(50304, (1, 1025))

    def step() -> None:  # one window: 12 of them would not fit into memory here, and cost 12 times as much
        loss = cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        adamw.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)

    first = {}
    for spec in ("fire", "fire:attention=all", "fire:preset=gpt"):
        begun = time.perf_counter()
        rk.apply_(spec, copy.deepcopy(net), example=example, undo=False)
        first[spec] = time.perf_counter() - begun
    graph = rk.trace(net, example)
    taken: dict[str, list[float]] = {"window": [], "update": [], **{spec: [] for spec in first}}
    for turn in range(given.turns + 1):
        for name, work in (
            ("window", step),
            ("update", adamw.step),
            *((spec, lambda spec=spec: rk.apply_(spec, net, graph=graph, undo=False)) for spec in first),
        ):
            begun = time.perf_counter()
            work()
            taken[name] += [time.perf_counter() - begun] if turn else []
    one = {name: statistics.median(values) for name, values in taken.items()}
    for windows_ in (12, 480):
        whole = windows_ * one["window"] + one["update"]
        for spec in first:
            yield {"network": "gpt 12x768", "spec": spec, "windows_a_step": windows_, "context": 1024} | {
                "steps_of_training": one[spec] / whole,
                "steps_of_training_first_call": first[spec] / whole,
                "seconds": one[spec],
                "seconds_of_a_window": one["window"],
            }


MEASURE = {"tokens": tokens, "fire": fire}

if __name__ == "__main__":
    main()
