"""What is put around a model for speed or for several processes, and what is inside."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside torch.compile, DistributedDataParallel and DataParallel.

    Example:
        >>> import torch
        >>> net = nn.Linear(2, 2)
        >>> unwrapped(torch.compile(net)) is net
        True
    """
    while (inner := _inside(model)) is not None:
        model = inner
    return model


def is_distributed(model: nn.Module) -> bool:
    """Tell whether DistributedDataParallel is among what is around a model."""
    around: nn.Module | None = model
    while around is not None and not isinstance(around, DistributedDataParallel):
        around = _inside(around)
    return around is not None


def _inside(model: nn.Module) -> nn.Module | None:
    compiled = getattr(model, "_orig_mod", None)
    if isinstance(compiled, nn.Module):
        return compiled
    return model.module if isinstance(model, (DistributedDataParallel, nn.DataParallel)) else None
