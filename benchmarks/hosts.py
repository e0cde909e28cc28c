"""What a host's callback costs: share of a training step with transformers' own Trainer.

    python benchmarks/hosts.py --network small        # about 2 minutes; appends rows to benchmarks/rows/hosts.jsonl
    python benchmarks/hosts.py --network larger       # about 10 minutes

Trainers without a callback, with one that waits (fire, at a step that never comes) and with soft_rescale take turns in
blocks of a few steps, as a user calls them; medians over all steps are compared, and medians of neighboring blocks.
A step is the time from the end of one to the end of the next, first steps of a block left out. `own_percent` is the
time in the callback's own moments, for what is too small to be seen as a difference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from rekindle.integrations.transformers import KeeperCallback

ROWS = Path(__file__).parent / "rows" / "hosts.jsonl"
NETWORKS = {  # layers, width, heads, context, batch
    "small": (3, 96, 4, 64, 16),
    "larger": (6, 384, 6, 128, 16),
}
WAYS = {
    "plain": None,
    "idle": lambda: KeeperCallback("fire", at=[10**9]),
    "soft_rescale": lambda: KeeperCallback("soft_rescale:strength=1e-3"),
}
BOUNDS = {"idle": 1, "soft_rescale": 3}
MOMENTS = ("on_step_begin", "on_optimizer_step", "on_step_end")
VOCABULARY = 512


def main() -> None:
    """Measure and append rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, default="small")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20, help="steps of a block")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for row in measure(given.network, given.turns, given.steps, given.threads):
        print(json.dumps(row), flush=True)
        with ROWS.open("a") as file:
            file.write(json.dumps(row) + "\n")


class Clock(TrainerCallback):
    """Notes the time from the end of a step to the end of the next."""

    def __init__(self) -> None:
        self.blocks: list[list[float]] = []
        self.last = 0.0

    def on_train_begin(self, *args, **kwargs) -> None:
        """Begin a block."""
        self.blocks.append([])
        self.last = 0.0

    def on_step_end(self, *args, **kwargs) -> None:
        """End a step."""
        now = time.perf_counter()
        if self.last:
            self.blocks[-1].append(now - self.last)
        self.last = now


class Own:
    """Adds up the time in the moments of a callback."""

    def __init__(self, callback: KeeperCallback | None) -> None:
        self.spent = 0.0
        for name in MOMENTS if callback is not None else ():
            setattr(callback, name, self.timed(getattr(callback, name)))

    def timed(self, call):
        """Return the call with its time noted."""

        def run(*args, **kwargs):
            start = time.perf_counter()
            call(*args, **kwargs)
            self.spent += time.perf_counter() - start

        return run


def built(network: str, callback: KeeperCallback | None, steps: int, folder: str) -> tuple[Trainer, Clock]:
    """Return a Trainer of a language model, with its clock as the last of the callbacks."""
    layers, width, heads, context, batch = NETWORKS[network]
    sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": context, "vocab_size": VOCABULARY}
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    data = [{"input_ids": one, "labels": one} for one in torch.randint(0, VOCABULARY, (batch * steps, context))]
    arguments = TrainingArguments(
        folder,
        max_steps=steps,
        per_device_train_batch_size=batch,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
    )
    clock = Clock()
    return Trainer(model, arguments, train_dataset=data, callbacks=[*([callback] if callback else []), clock]), clock


def measure(network: str, turns: int, steps: int, threads: int):
    """Yield a row for each way; all ways take turns."""
    with tempfile.TemporaryDirectory() as folder:
        callbacks = {name: make() if make else None for name, make in WAYS.items()}
        own = {name: Own(callback) for name, callback in callbacks.items()}
        runs = {name: built(network, callback, steps, folder) for name, callback in callbacks.items()}
        for turn in range(turns + 1):
            order = list(runs)[turn % len(runs) :] + list(runs)[: turn % len(runs)]
            for name in order:
                runs[name][0].train()
                if turn == 0:  # traced, warmed up
                    runs[name][1].blocks.clear()
                    own[name].spent = 0.0
    found = {name: clock.blocks for name, (_, clock) in runs.items()}
    median = {name: statistics.median(time for block in blocks for time in block) for name, blocks in found.items()}
    for name in WAYS:
        if name == "plain":
            continue
        pairs = zip(found[name], found["plain"], strict=True)
        paired = statistics.median(statistics.median(a) / statistics.median(b) for a, b in pairs)
        yield {
            "host": f"transformers {transformers.__version__}",
            "network": network,
            "callback": name,
            "threads": threads,
            "turns": turns,
            "steps": steps,
            "plain_ms": round(1000 * median["plain"], 3),
            "overhead_percent": round(100 * (median[name] / median["plain"] - 1), 1),
            "overhead_percent_of_blocks": round(100 * (paired - 1), 1),
            "own_percent": round(100 * own[name].spent / (turns * steps) / median["plain"], 2),
            "bound_percent": BOUNDS[name],
            "torch": torch.__version__,
        }


if __name__ == "__main__":
    main()
