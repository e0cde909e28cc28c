"""What was changed, by how much, and what was left alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table
from torch import Tensor

from rekindle._renamed import refuse_old_name
from rekindle.edits.edit import Edit, Skip
from rekindle.edits.surgery import Surgery
from rekindle.graph.names import is_statistic
from rekindle.graph.regions import MatrixView, Whole
from rekindle.kernels.isometry import count_changed, deviation_from_isometry, frobenius_norm, squared_frobenius_error
from rekindle.text import counted, number, render


@dataclasses.dataclass(frozen=True)
class Row:
    """One edit in numbers.

    SFE is |W - W'|_F^2 (FIRE, eq. 1). DfI is |W^T W - I|_F^2 on the smaller side with the scale divided out (zero: a
    multiple of an isometry), summed over the matrices of the weight (kernel positions, groups), and None for tensors
    that are no matrices.
    """

    tensor: str
    reason: str
    count: int
    changed: int
    norm_before: float
    norm_after: float
    sfe: float
    dfi_before: float | None
    dfi_after: float | None


def measure(edit: Edit, before: Tensor, after: Tensor, views: Sequence[MatrixView]) -> Row:
    """Return the row of one edit; `views` are the matrices that a whole tensor holds."""
    return Row(
        tensor=edit.tensor,
        reason=edit.reason,
        count=before.numel(),
        changed=count_changed(before, after),
        norm_before=frobenius_norm(before),
        norm_after=frobenius_norm(after),
        sfe=float(squared_frobenius_error(before, after)),
        dfi_before=_dfi(edit, before, views),
        dfi_after=_dfi(edit, after, views),
    )


def _dfi(edit: Edit, part: Tensor, views: Sequence[MatrixView]) -> float | None:
    if isinstance(edit.where, MatrixView):
        matrices = [part]
    else:
        matrices = [view.read(part) for view in views] if isinstance(edit.where, Whole) else []
    if not matrices:
        return None
    return sum(float(deviation_from_isometry(each, scale_free=True).sum()) for each in matrices)


@dataclasses.dataclass(eq=False)
class ChangeRecord:
    """What a treatment did; prints as a table, and can undo it.

    Attributes:
        method: The settings that were applied.
        rows: One for each edit.
        skips: Tensors that were left alone, with the reason.
        notices: What the user should know or do next.
        surgery: Changes of structure.
    """

    method: Any
    rows: tuple[Row, ...]
    skips: tuple[Skip, ...] = ()
    notices: tuple[str, ...] = ()
    surgery: tuple[Surgery, ...] = ()
    _undo: Callable[[bool], None] | None = dataclasses.field(default=None, repr=False)

    @property
    def sfe(self) -> float:
        """Squared Frobenius error over all edits of parameters; running statistics and their counters are none."""
        return sum(row.sfe for row in self.rows if not is_statistic(row.tensor))

    @property
    def changed(self) -> int:
        """Number of values that are different now."""
        return sum(row.changed for row in self.rows)

    def undo(self, *, force: bool = False) -> None:
        """Put weights, optimizer moments and structure back as they were.

        Raises:
            EditError: A tensor was written since and `force` is not set.
        """
        if self._undo is None:
            return
        self._undo(force)
        self._undo = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a log or a file."""
        return {
            "method": repr(self.method),
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "skips": [dataclasses.asdict(skip) for skip in self.skips],
            "notices": list(self.notices),
            "surgery": [operation.to_dict() for operation in self.surgery],
        }

    def __getattr__(self, name: str) -> Any:
        if name == "grafts":
            raise refuse_old_name("ChangeRecord", name, "surgery")
        raise AttributeError(f"'ChangeRecord' object has no attribute {name!r}")

    def __str__(self) -> str:
        """Return the table."""
        return table_of(f"{self.method}", self.rows, self.skips, self.notices, self.surgery)


def _by_reason(skips: Sequence[Skip]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for skip in skips:
        found.setdefault(skip.reason, {})[skip.tensor] = None
    return {reason: list(names) for reason, names in found.items()}


def table_of(
    title: str, rows: Sequence[Row], skips: Sequence[Skip], notices: Sequence[str], surgery: Sequence[Surgery] = ()
) -> str:
    """Return rows, changes of structure, skips and notices as text."""
    table = Table(title=title, title_justify="left")
    for name in ("tensor", "reason"):
        table.add_column(name, overflow="fold")
    for name in ("values", "changed", "norm", "SFE", "DfI"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.tensor,
            row.reason,
            str(row.count),
            str(row.changed),
            f"{number(row.norm_before)} -> {number(row.norm_after)}",
            number(row.sfe),
            "" if row.dfi_before is None else f"{number(row.dfi_before)} -> {number(row.dfi_after)}",
        )
    lines = [render(table)]
    lines += [f"structure: {operation}" for operation in surgery]
    lines += [f"skipped: {counted(names)}: {reason}" for reason, names in _by_reason(skips).items()]
    lines += [f"note: {notice}" for notice in notices]
    return "\n".join(lines)
