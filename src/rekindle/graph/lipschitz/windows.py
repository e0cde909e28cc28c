"""How often an input is read by windows, and bounds of linear operations whose weights are not negative."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def most_windows(size: int, outputs: int, kernel: int, stride: int, padding: int = 0, dilation: int = 1) -> int:
    """Return in how many windows the input that is in most of them is.

    Args:
        size: Number of inputs along the dimension.
        outputs: Number of windows.
        kernel: Inputs of a window.
        stride: From one window to the next.
        padding: What the first window begins before the first input.
        dilation: From one input of a window to the next.

    Example:
        >>> most_windows(8, 4, kernel=2, stride=2), most_windows(8, 4, kernel=3, stride=2, padding=1)
        (1, 2)
    """
    read = (torch.arange(outputs) * stride - padding)[:, None] + torch.arange(kernel) * dilation  # [windows, kernel]
    inside = read[(read >= 0) & (read < size)]
    return int(inside.bincount().max()) if inside.numel() else 0


def nonnegative_bound(operation: Callable[[Tensor], Tensor], ones: Tensor) -> float:
    """Return a bound of a linear operation A with weights that are not negative: sqrt(max row sum * max column sum).

    That is Schur's test, |A|_2^2 <= |A|_1 |A|_inf. It is reached where rows, or columns, have one element: repetitions
    (the root of how often an input is read most), averages of windows that do not overlap.

    Args:
        operation: The operation.
        ones: Ones in the shape of its input.

    Example:
        >>> nonnegative_bound(lambda x: x.repeat(4), torch.ones(3))
        2.0
    """
    with torch.enable_grad():
        inputs = ones.detach().clone().requires_grad_()
        outputs = operation(inputs)  # the sums of rows
        [columns] = torch.autograd.grad(outputs.sum(), inputs)
    return math.sqrt(float(outputs.detach().max()) * float(columns.max()))


def several(given: Any, count: int) -> list[int]:
    """Return a setting for each dimension: given for all, or one by one.

    Example:
        >>> several(2, 2), several([3], 2), several((1, 2), 2)
        ([2, 2], [3, 3], [1, 2])
    """
    numbers = list(given) if isinstance(given, Sequence) else [given]
    return [int(number) for number in (numbers * count if len(numbers) == 1 else numbers)]
