"""Rows as JSON lines: written whole or not at all, read with whatever a crash has left of them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = dict[str, Any]


class TornWarning(UserWarning):
    """A result file holds lines that are no rows; they were left out."""


def to_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    r"""Return rows as JSON lines.

    Example:
        >>> to_lines([{"epoch": 1, "accuracy": 0.5}, {"epoch": 2}])
        '{"epoch": 1, "accuracy": 0.5}\n{"epoch": 2}\n'
    """
    return "".join(json.dumps(dict(row), default=_plain) + "\n" for row in rows)


def _plain(value: Any) -> Any:
    """Turn NumPy and torch numbers, arrays and paths into what JSON knows."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a row holds {value!r}, which is no number, text, list or mapping")


def read_lines(path: Path) -> list[Row]:
    """Return the rows of a file; lines that are no row are left out with a warning.

    Args:
        path: A file of JSON lines; one that is not there has no rows.
    """
    if not path.exists():
        return []
    rows, torn = [], []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip(b"\0 \r\t"):
            row = _row(line)
            rows += [row] if row is not None else []
            torn += [number] if row is None else []
        elif line:
            torn.append(number)  # zeros: the file grew on disk, its content did not
    if torn:
        where = ", ".join(map(str, torn[:5]))
        warnings.warn(f"{path}: line {where} torn by a crash or a full disk; left out", TornWarning, stacklevel=2)
    return rows


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def read_mapping(path: Path) -> Row | None:
    """Return the mapping of a JSON file, or None if it is not there or torn."""
    try:
        return _row(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Return rows as NumPy columns; a number that a row lacks is NaN, anything else that it lacks None.

    Example:
        >>> columns([{"method": "fire", "loss": 1}, {"method": "none"}])
        {'method': array(['fire', 'none'], dtype=object), 'loss': array([ 1., nan])}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> NDArray[Any]:
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        whole = len(given) == len(values) and all(isinstance(value, int) for value in given)
        return np.array(values) if whole else np.array(values, dtype=float)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
