"""Training by several processes, each with a replica of the model and a share of every batch.

`torchrun` starts them and `torch.nn.parallel.DistributedDataParallel` sums gradients; with one process nothing here
does anything. All draws are named by seed and place, so that every process makes the same ones.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rekindle.errors import RekindleError
from rekindle.observe.distributed import processes
from rekindle.seeds import seed_of


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if processes() > 1 else 0


def wrap(model: nn.Module) -> nn.Module:
    """Return the model so that its gradients are the mean over all processes; alone, the model itself."""
    return DistributedDataParallel(model) if processes() > 1 else model


def own_share(batch: Tensor) -> Tensor:
    """Return the part of a batch that this process computes.

    Raises:
        RekindleError: The batch cannot be divided evenly: the mean over processes would not be that over examples.
    """
    if len(batch) % processes():
        raise RekindleError(
            expected=f"a batch that {processes()} processes can share evenly",
            got=f"{len(batch)} examples",
            fix="take a batch size that is a multiple of the number of processes",
        )
    return batch.view(processes(), -1)[rank()] if processes() > 1 else batch


def exchanged(model: nn.Module, now: bool) -> AbstractContextManager[None]:
    """Return a block whose gradients are exchanged at its end, or only summed in this process."""
    return nullcontext() if now or not isinstance(model, DistributedDataParallel) else model.no_sync()


def mean(value: Tensor) -> Tensor:
    """Return the mean of a number over all processes, the same in each: one of them saves it for all."""
    if processes() == 1:
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total / processes()


def seed_dropout(seed: int, place: str) -> None:
    """Seed the global generator of this process for a step, if there are several.

    A checkpoint has the generator's state of one process only: named by place, the others need none.
    """
    if processes() > 1:
        torch.manual_seed(seed_of(seed, f"{place}, process {rank()}", "dropout"))
