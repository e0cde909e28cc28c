"""Tables as plain text, the same in a terminal, a log and a test."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def render(table: Table, width: int = 140) -> str:
    """Return a rich table as text without colors."""
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False)
    console.print(table)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def number(value: float | None) -> str:
    """Return a number in four significant digits at the most.

    Example:
        >>> number(0.000123456), number(12.0), number(None)
        ('0.0001235', '12', '')
    """
    return "" if value is None else f"{value:.4g}"


def counted(names: Sequence[str], shown: int = 3) -> str:
    """Return some names and how many there are.

    Example:
        >>> counted(["a", "b", "c", "d"]), counted(["a"])
        ('4 tensors (a, b, c, ...)', 'a')
    """
    if len(names) == 1:
        return names[0]
    return f"{len(names)} tensors ({', '.join(names[:shown])}{', ...' if len(names) > shown else ''})"
