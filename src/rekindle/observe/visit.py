"""Run a model as in training and leave no trace: modes, buffers, generators and gradients are what they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.errors import PlanError
from rekindle.graph.calls.containers import map_tensors, tensors_in
from rekindle.graph.unwrap import as_written
from rekindle.observe.batches import in_plain_dicts
from rekindle.seeds import global_seed


@contextlib.contextmanager
def visit(model: nn.Module, seed: int, reason: str, *, everywhere: bool = False) -> Iterator[None]:
    """Let a model run in training mode on copies of its buffers, with generators of its own.

    Buffers are exchanged, not written: whatever the forward pass does to running statistics (or any other buffer)
    happens to the copies. A model in training mode keeps the modes of its parts, so that layers which are frozen on
    purpose stay frozen; a model in evaluation mode is put into training mode as a whole.

    Args:
        model: The model.
        seed: Seed of dropout, shuffling and the like, together with the reason.
        reason: What the visit is for.
        everywhere: Put every part into training mode, whatever it was in.
    """
    modes = [(module, module.training) for module in model.modules()]
    stored = [(m, name, t) for m, _ in modes for name, t in m._buffers.items() if t is not None]
    copies = {id(tensor): tensor.detach().clone() for _, _, tensor in stored}  # shared buffers stay shared
    try:
        if everywhere or not model.training:
            model.train()
        for module, name, tensor in stored:
            module._buffers[name] = copies[id(tensor)]
        with global_seed(seed, "data", reason), as_written(model):
            yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise PlanError(
            expected="batches of at least two samples, as BatchNorm needs in training mode",
            got=str(error),
            fix="leave an incomplete last batch out (drop_last=True in your DataLoader)",
        ) from error
    finally:
        for module, name, tensor in stored:
            module._buffers[name] = tensor
        for module, mode in modes:
            module.training = mode


def no_values(tensor: str, purpose: str) -> PlanError:
    """Return the error of something that is to be computed from a model on the meta device."""
    return PlanError(
        expected=f"a model with values for {purpose}, which runs it",
        got=f"{tensor} on the meta device, which has none",
        fix="load the weights first",
    )


def batches_of(data: Any, device: torch.device | None, purpose: str) -> Iterator[Any]:
    """Yield the batches of `data`, with their tensors on the model's device.

    Raises:
        PlanError: It is one batch instead of many, cannot be iterated over, or has no batch.
    """
    _check_many(data, purpose)
    number = -1
    for number, batch in enumerate(data):  # noqa: B007
        yield map_tensors(lambda t: t.to(device, non_blocking=True), in_plain_dicts(batch))
    if number < 0:
        raise PlanError(
            expected=f"at least one batch of data for {purpose}",
            got="none",
            fix="pass a list of batches or a DataLoader; a generator that was used before is empty",
        )


def _check_many(data: Any, purpose: str) -> None:
    single = isinstance(data, (Tensor, Mapping)) or (
        isinstance(data, tuple) and any(isinstance(part, Tensor) for part in data)
    )
    if single or not isinstance(data, Iterable):
        raise PlanError(
            expected=f"data for {purpose}: an iterable of batches, as a DataLoader or a list is",
            got=f"one batch (a {type(data).__name__})" if single else type(data).__name__,
            fix="put a single batch into a list: data=[(inputs, targets)]",
        )


def size_of(batch: Any) -> int:
    """Return the number of samples of a batch: the length of its first tensor that has one; 1 if there is none.

    A mean over several batches weights each by it, so that an incomplete last batch does not count as a whole one. The
    loss of a batch is taken as a mean over its samples. That a loss is a sum cannot be seen from a number: such a one
    has to be divided by the number of samples in the user's own function.

    Example:
        >>> size_of({"input_ids": torch.zeros(3, 7)}), size_of((torch.tensor(0.5), torch.zeros(4, 2)))
        (3, 4)
    """
    return next((len(tensor) for tensor in tensors_in(batch) if tensor.ndim), 1)


def device_of(tensors: Iterable[Tensor]) -> torch.device | None:
    """Return the device of the first tensor, or None without any."""
    return next((tensor.device for tensor in tensors), None)
