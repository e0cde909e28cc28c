"""FIRE against the naive way: a Python loop over layers and kernel positions, ten cubic steps each.

    python benchmarks/fire.py --threads 1        # about 10 minutes; appends rows to benchmarks/rows/fire.jsonl
    python benchmarks/fire.py --threads 2 --networks vit_tiny

Naive loop, `auto` and `exact` take turns in one run on the same float32 weights, from the model's tensors to new ones,
and medians are kept. DfI is per row
of the small side, with the scale divided out; the error is |X - P|_F/|P|_F against a float64 singular value
decomposition, the worst over one matrix of each shape. "gaussian" weights are the hard case (square ones have tiny
singular values); "trained" ones have seen some steps of Adam on random data (their number is in the row).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

ROWS = Path(__file__).parent / "rows" / "fire.jsonl"


def main() -> None:
    """Measure and append rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--weights", nargs="*", default=["gaussian", "trained"])
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    import torch

    torch.set_num_threads(given.threads)
    for network in given.networks:
        for kind in given.weights:
            row = measure(network, kind, given.threads, given.repeats)
            print(json.dumps(row), flush=True)
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")


def measure(network: str, kind: str, threads: int, repeats: int) -> dict[str, object]:
    """Return one row."""
    import torch

    from rekindle.kernels.polar import polar, polar_exact

    model, graph, chosen, steps = NETWORKS[network](kind)
    tensors = dict(model.named_parameters())
    ways = {
        "naive": lambda: naive_way(chosen, tensors),
        "auto": our_way("fire:attention=all", model, graph, chosen),
        "exact": our_way("fire:attention=all,solver=exact", model, graph, chosen),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    matrices = [weight.view.read(tensors[weight.tensor].detach()) for weight in chosen]
    row: dict[str, object] = {
        "network": network,
        "weights": kind if kind == "gaussian" else f"{steps} Adam steps",
        "threads": threads,
        "matrices": sum(len(batch) for batch in matrices),
        "repeats": repeats,
        "naive_s": round(medians["naive"], 4),
        "auto_over_naive_speed": round(medians["naive"] / medians["auto"], 2),
        "exact_over_naive_time": round(medians["exact"] / medians["naive"], 2),
    }
    for name, solve in {"naive": naive, "auto": lambda batch: polar(batch, 1e-4), "exact": polar_exact}.items():
        dfi, error = quality(matrices, solve)
        row[f"{name}_dfi_per_row"] = float(f"{dfi:.2g}")
        row[f"{name}_error"] = float(f"{error:.2g}")
    row["torch"] = torch.__version__
    return row


def naive_way(chosen, tensors) -> None:
    """Compute new tensors for all weights: read the slices, loop, put them back together."""
    for weight in chosen:
        old = tensors[weight.tensor].detach()
        weight.view.write(old, naive(weight.view.read(old)))


def our_way(spec: str, model, graph, chosen) -> Callable[[], None]:
    """Return the computation of new tensors behind `rk.apply_`, with all its checks, without the record's numbers."""
    import rekindle as rk
    from rekindle.edits.compute import compute

    names = {weight.tensor for weight in chosen}
    plan = rk.plan(spec, model, graph=graph)
    edits = [edit for edit in plan.edits if edit.tensor in names]

    def run() -> None:
        for _ in compute(edits, plan.tensors, measured=False):
            pass

    return run


def naive(batch):
    """Ten cubic Newton-Schulz steps, slice by slice, as published."""
    import torch

    done = []
    for w in batch:
        x = w / w.norm()
        for _ in range(10):
            x = 1.5 * x - 0.5 * (x @ (x.T @ x))
        done.append(x)
    return torch.stack(done)


def quality(matrices, way) -> tuple[float, float]:
    """Return the worst DfI per row and the worst error over one matrix of each shape."""
    import torch

    from rekindle.kernels.isometry import deviation_from_isometry

    worst_dfi = worst_error = 0.0
    seen = set()
    for batch in matrices:
        if batch.shape[1:] in seen:
            continue
        seen.add(batch.shape[1:])
        w = batch[:1]
        x = way(w).double()
        worst_dfi = max(worst_dfi, float(deviation_from_isometry(x).max()) / min(w.shape[1:]))
        if min(w.shape[1:]) <= 1024:
            u, _, vh = torch.linalg.svd(w.double(), full_matrices=False)
            worst_error = max(worst_error, float((x - u @ vh).norm() / (u @ vh).norm()))
    return worst_dfi, worst_error


def _prepared(model, example, kind: str, roles: tuple[str, ...], steps: int):
    """Return model, graph, the weights with these roles, and the steps of training if they are not Gaussian."""
    import torch

    import rekindle as rk

    if kind == "trained":
        _train(model, example, steps)
    graph = rk.trace(model, example)
    chosen = [weight for weight in graph.weights if weight.role in roles]
    noise = torch.Generator().manual_seed(0)
    for weight in chosen if kind == "gaussian" else ():
        model.get_parameter(weight.tensor).data.normal_(generator=noise)
    return model, graph, chosen, steps


def _train(model, example, steps: int) -> None:
    import torch

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        torch.manual_seed(step)
        inputs = (
            torch.randint(0, 1000, example.shape) if not example.is_floating_point() else torch.randn(example.shape)
        )
        outputs = model(inputs).flatten(0, -2)
        loss = torch.nn.functional.cross_entropy(outputs, torch.randint(0, outputs.shape[-1], (len(outputs),)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


EVERY = ("input", "hidden", "head", "q", "k", "v", "o")


def resnet18(kind: str):
    """ResNet-18, CIFAR stem."""
    import torch

    import rekindle as rk

    return _prepared(rk.lab.models.ResNet18(), torch.zeros(16, 3, 32, 32), kind, EVERY, 40)


def vgg16(kind: str):
    """VGG-16, 64x64 input, 4096 hidden."""
    import torch

    import rekindle as rk

    model = rk.lab.models.VGG16(200, image_size=64, hidden=4096)
    return _prepared(model, torch.zeros(8, 3, 64, 64), kind, EVERY, 10)


def vit_tiny(kind: str):
    """ViT-Tiny, queries and keys."""
    import torch

    import rekindle as rk

    model = rk.lab.models.vit_tiny()
    return _prepared(model, torch.zeros(16, 3, 32, 32), kind, ("q", "k"), 40)


def gpt2(kind: str):
    """GPT-2 124M: q, k, v, o and the MLP."""
    import torch

    import rekindle as rk

    return _prepared(
        rk.lab.models.GPT(), torch.zeros(1, 32, dtype=torch.long), kind, ("q", "k", "v", "o", "hidden"), 10
    )


NETWORKS = {"resnet18": resnet18, "vgg16": vgg16, "vit_tiny": vit_tiny, "gpt2": gpt2}

if __name__ == "__main__":
    main()
