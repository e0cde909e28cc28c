"""One run by several processes that `torchrun` starts: each has a replica, the first one claims, tells and writes.

torchrun --nproc-per-node 2 -m rekindle run spec.yaml
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rekindle.lab.runs.execute import EngineError, Event, execute_run, find, shared_prefix_of
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.observe.distributed import processes
from rekindle.training import replicas

# What exchanges raise, gloo's and NCCL's, when another process is gone: gloo has no exception of its own.
LOST = ("third_party/gloo", "DistBackendError", "DistNetworkError")


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Join the other processes inside the block, if `torchrun` started several; alone, do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def execute_together(store: Store, run: Run, function: str, **options: Any) -> Event:
    """Train one run by all processes that were joined, and return how it ended; the same event in all of them.

    The first process looks whether there is something to do, claims the run and writes its checkpoints and rows. The
    folder of results must be one that all processes can read, to go on from a checkpoint. If one process fails,
    `torchrun` ends the others; the run has failed if it was the first one, and otherwise stays open.

    Raises:
        EngineError: Another process is gone.
    """
    if processes() == 1:
        return execute_run(store, run, function, lambda event: None, **options)
    if replicas.rank() > 0:
        return _follow(store, run, function)
    begun = []

    def tell(event: Event) -> None:
        if event.kind == "started":
            begun.append(True)
            _broadcast(str(store.checkpoint(run.key)))

    event = execute_run(store, run, function, tell, **options)
    if not begun:
        _broadcast("")  # nothing to do: the others must not wait
    elif event.kind == "failed":  # the others may be in the middle of an exchange, and would not hear of it
        return _unless_lost(store, event)
    _broadcast(event)
    return event


def _unless_lost(store: Store, event: Event) -> Event:
    """Return how a run ended that failed here; where that is because another process is gone, leave it open."""
    if not any(words in event.text for words in LOST):
        return event
    store.forgive(event.key)
    raise EngineError(
        expected="every process of the run to stay until its end",
        got=f"one that is gone, see what it said: {event.text}",
        fix="start the same command again: the run goes on from its last checkpoint",
    )


def _follow(store: Store, run: Run, function: str) -> Event:
    folder = _broadcast(None)
    if folder:
        find(function)(run, Path(folder), **shared_prefix_of(store, run, function))
    event: Event = _broadcast(None)
    return event


def _broadcast(value: Any) -> Any:
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
