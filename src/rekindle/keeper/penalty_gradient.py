"""The penalty of a Keeper where somebody else computes the loss, scales it, splits it into parts and clips."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from rekindle.keeper.keeper import Keeper


def add_penalty_gradient(keeper: Keeper, parameters: Iterable[Tensor], *, scale: float = 1.0) -> None:
    """Add the gradient of the penalty to `.grad`, in the place of `loss + keeper.penalty()`.

    A trainer divides a loss by the batches that it accumulates, by numbers of tokens or by processes. What is added to
    the loss is divided as well, what is added to the gradient is not. Call it once for each step of the optimizer:
    before the first backward pass, or after the last one and before gradients are clipped, which is where
    `loss.backward()` would have put it.

    Args:
        keeper: The Keeper.
        parameters: The model's.
        scale: What the trainer multiplies gradients by until the step (GradScaler's `get_scale()`).

    Example:
        >>> net = torch.nn.Linear(1, 1, bias=False)
        >>> keeper = Keeper(net, methods="l2:strength=0.5")
        >>> _ = net.weight.data.fill_(3.0)
        >>> add_penalty_gradient(keeper, net.parameters())
        >>> net.weight.grad.item()
        1.5
    """
    penalty = keeper.penalty()
    if not isinstance(penalty, Tensor) or not penalty.requires_grad:
        return
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    # Not backward(): DistributedDataParallel and optimizers that step inside of it listen there.
    found = torch.autograd.grad(penalty, trained, allow_unused=True)
    for parameter, gradient in zip(trained, found, strict=True):
        if gradient is not None:
            _add(parameter, gradient if scale == 1 else gradient * scale)


@torch.no_grad()
def _add(parameter: Tensor, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter).copy_(gradient)  # laid out as the parameter, and its own
    else:
        parameter.grad.add_(gradient)
