"""Rows as TensorBoard events, beside the rows that they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rekindle.lab.runs.execute import EngineError

NO_CURVE = ("seed", "stage", "epoch", "step", "threads", "batch_size")


def write_events(folder: Path, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write each number of the rows as a curve over the rows; return how many points.

    Args:
        folder: Of one run; TensorBoard names the curves after it.
        rows: Of one run, in their order.

    Raises:
        EngineError: The package tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise EngineError(
            expected="the package tensorboard, for --tensorboard",
            got="an installation without it",
            fix="pip install 'rekindle[tensorboard]', or leave --tensorboard out: the rows are written anyway",
        ) from None
    written = 0
    with SummaryWriter(str(folder)) as writer:
        for step, row in enumerate(rows):
            for name, value in _curves(row):
                writer.add_scalar(name, value, step)
                written += 1
    return written


def _curves(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    numbers = [(name, value) for name, value in row.items() if isinstance(value, int | float)]
    return [(name, value) for name, value in numbers if name not in NO_CURVE and not isinstance(value, bool)]
