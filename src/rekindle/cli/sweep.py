"""`rekindle sweep`: all runs of a spec, on this machine or on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from rekindle.lab.runs.execute import Engine, Summary
    from rekindle.lab.runs.spec import Run
    from rekindle.lab.runs.store import Store


def run(
    spec: Annotated[Path, tyro.conf.Positional],
    out: Path | None = None,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    retry: bool = False,
    retries: int = 2,
    free_memory: float = 1.0,
    address: str = "auto",
    cpus: float = 1,
    gpus: float = 0,
    stack: bool = False,
    tensorboard: bool = False,
    dry_run: bool = False,
) -> None:
    """Run all runs of a YAML spec that are not finished yet; stopped at any moment, the same command goes on.

    Args:
        spec: A YAML file: fields of a run, `grid` with lists of values, `seeds`.
        out: Folder of the results; runs/<name of the spec> when left out.
        engine: Processes of this machine, or the Ray cluster at `address`.
        workers: Local processes at once; one for each core when left out.
        retry: Also run again what failed before.
        retries: How often a run is tried again whose process or node died.
        free_memory: Gigabytes that must be free before a local run starts beside others.
        address: Of the Ray cluster.
        cpus: Cores of one run on Ray.
        gpus: GPUs of one run on Ray.
        stack: Train the seeds of small MLPs together in local processes, where that can be done: faster, with the same
            results up to rounding.
        tensorboard: Also write the rows as TensorBoard events.
        dry_run: Only show what would be run.
    """
    from rekindle.lab.runs import execute
    from rekindle.lab.runs.engines.local import LocalEngine
    from rekindle.lab.runs.engines.ray_cluster import RayEngine
    from rekindle.lab.runs.engines.stacking import StackingEngine
    from rekindle.lab.runs.progress import Display
    from rekindle.lab.runs.store import Store
    from rekindle.lab.runs.sweep import read_sweep

    sweep = read_sweep(spec)
    runs, store = sweep.expand(), Store(out or Path("runs") / sweep.name)
    if dry_run:
        show(runs, store)
        return
    chosen: Engine = LocalEngine(workers=workers, retries=retries, free_memory=free_memory)
    if engine == "ray":
        chosen = RayEngine(address=address, cpus=cpus, gpus=gpus, retries=retries)
    if stack:
        chosen = StackingEngine(chosen, workers)
    with Display(runs) as display:
        display.ended = sum(store.state(run.key) == "finished" for run in runs)
        summary = execute.run_sweep(store, runs, chosen, function=execute.TRAIN_RUN, retry=retry, listen=display)
    if tensorboard:
        draw(runs, store)
    conclude(summary, store)


def show(runs: list[Run], store: Store) -> None:
    """Print what would be run and what is there already."""
    from rekindle.lab.runs.progress import labels

    for run, label in zip(runs, labels(runs), strict=True):
        print(f"{run.key}  {store.state(run.key):8}  {label}")
    print(f"{len(runs)} runs, {sum(store.state(run.key) == 'open' for run in runs)} of them open, in {store.folder}")


def draw(runs: list[Run], store: Store) -> None:
    """Write TensorBoard events of the finished runs that have none."""
    from rekindle.lab.runs.tensorboard import write_events

    for run in runs:
        folder = store.path(run.key) / "tensorboard"
        if store.state(run.key) == "finished" and not folder.exists():
            write_events(folder, store.rows(run.key))


def conclude(summary: Summary, store: Store) -> None:
    """Print what came of it; the exit code is 0, 1 if a run failed, 130 after Ctrl-C or SIGTERM."""
    counts = {
        "finished": len(summary.finished),
        "finished before": len(summary.finished_before),
        "failed": len(summary.failed),
        "failed before": len(summary.failed_before),
        "run by another process": len(summary.elsewhere),
        "tried again after a process died": len(summary.retried),
    }
    print(f"{store.folder}: " + (", ".join(f"{n} {what}" for what, n in counts.items() if n) or "nothing was run"))
    for key in (*summary.failed, *summary.failed_before):
        reason = store.failure(key).strip().rpartition("\n")[2]
        print(f"  {key} failed: {reason} (all of it in {store.path(key) / 'failed.json'})")
    if summary.failed_before:
        print("What failed before is run again with --retry.")
    if summary.interrupted:
        print("Stopped. The same command goes on from the last checkpoints.")
        raise SystemExit(130)
    if summary.failed or summary.failed_before:
        raise SystemExit(1)
