"""`rekindle run`: one run of a spec, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro


def run(spec: Annotated[Path, tyro.conf.Positional], out: Path | None = None, retry: bool = False) -> None:
    """Train the one run that a YAML spec describes; stopped at any moment, it goes on from its last checkpoint.

    `torchrun --nproc-per-node 2 -m rekindle run SPEC` trains it by several processes, which share every batch.

    Args:
        spec: A YAML file with the fields of a run: protocol, data, model, methods, seed.
        out: Folder of the results; runs/<name of the spec> when left out.
        retry: Run it again if it failed before.
    """
    from rich.console import Console

    from rekindle.lab.runs import execute
    from rekindle.lab.runs.processes import execute_together, joined
    from rekindle.lab.runs.progress import describe
    from rekindle.lab.runs.store import Store
    from rekindle.lab.runs.sweep import SweepError, read_sweep
    from rekindle.training.replicas import rank

    sweep = read_sweep(spec)
    runs = sweep.expand()
    if len(runs) != 1:
        raise SweepError(expected="one run", got=f"{spec}: {len(runs)} runs", fix=f"use `rekindle sweep {spec}`")
    console, store, key = Console(highlight=False), Store(out or Path("runs") / sweep.name), runs[0].key
    with joined(runs[0].device):
        if retry and rank() == 0:
            store.forgive(key)
        event = execute_together(store, runs[0], execute.TRAIN_RUN, bar=True)
        if rank() > 0:
            return
    if event.kind == "elsewhere":
        console.print(f"Another process works on it in {store.path(key)}; nothing was done here.", soft_wrap=True)
        return
    if store.state(key) == "failed":
        console.print(store.failure(key), markup=False)
        console.print("It failed; mend the cause and run it again with --retry.")
        raise SystemExit(1)
    rows = store.rows(key)
    console.print(
        f"{len(rows)} rows in {store.path(key)}: {describe(rows[-1]) if rows else 'none yet'}", soft_wrap=True
    )
