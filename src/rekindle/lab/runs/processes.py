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

from rekindle.lab.runs.execute import Event, execute_run, find
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.observe.distributed import processes
from rekindle.training import replicas


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
    `torchrun` ends the others.
    """
    if processes() == 1:
        return execute_run(store, run, function, lambda event: None, **options)
    if replicas.rank() > 0:
        return _follow(run, function)
    begun = []

    def tell(event: Event) -> None:
        if event.kind == "started":
            begun.append(True)
            _broadcast(str(store.checkpoint(run.key)))

    event = execute_run(store, run, function, tell, **options)
    if not begun:
        _broadcast("")  # nothing to do: the others must not wait
    _broadcast(event)
    return event


def _follow(run: Run, function: str) -> Event:
    folder = _broadcast(None)
    if folder:
        find(function)(run, Path(folder))
    event: Event = _broadcast(None)
    return event


def _broadcast(value: Any) -> Any:
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]
