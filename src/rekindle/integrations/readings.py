"""What was done in a host's training, as numbers for its log and in a line of text."""

from __future__ import annotations

from typing import Any

from rekindle.edits.record import ChangeRecord
from rekindle.keeper.events import RecyclingRecord
from rekindle.methods.kinds import key_of as key_of_class
from rekindle.text import counted, number

PREFIX = "rekindle"


class Readings:
    """Numbers since they were last taken: of a treatment those of the last one, of recyclers the sum."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}

    def add(self, record: ChangeRecord | RecyclingRecord) -> None:
        """Take in what a record says."""
        if isinstance(record, ChangeRecord):
            self._found |= of_treatment(record)
            return
        for name, value in of_recycling(record).items():
            self._found[name] = self._found.get(name, 0.0) + value

    def take(self) -> dict[str, float]:
        """Return them, and begin anew; empty if nothing was done."""
        found, self._found = self._found, {}
        return found


def of_treatment(record: ChangeRecord) -> dict[str, float]:
    """Return how far weights have moved, how many tensors were edited, and how many were left alone."""
    name = f"{PREFIX}/{key_of(record.method)}"
    edited = {row.tensor for row in record.rows if row.changed}
    skipped = {skip.tensor.partition("[")[0] for skip in record.skips} - edited
    return {f"{name}/sfe": record.sfe, f"{name}/edited": float(len(edited)), f"{name}/skipped": float(len(skipped))}


def of_recycling(record: RecyclingRecord) -> dict[str, float]:
    """Return how many units were recycled, or for methods that draw single weights how many tensors were touched."""
    name = f"{PREFIX}/{key_of_class(record.method.partition('(')[0])}"
    if not record.units:
        return {f"{name}/tensors": float(len(record.tensors))}
    return {f"{name}/recycled": float(sum(map(len, record.units.values())))}


def in_a_line(record: ChangeRecord | RecyclingRecord, step: int) -> str:
    """Return a record in a line, with the step after which it was made."""
    if isinstance(record, RecyclingRecord):
        return str(record)
    edited = list(dict.fromkeys(row.tensor for row in record.rows if row.changed))
    told = [f"changed {counted(edited)}, SFE {number(record.sfe)}"] if edited else []
    told += [str(operation) for operation in record.surgery]
    return f"step {step}: {key_of(record.method)} {'; '.join(told) or 'changed nothing'}"


def key_of(method: Any) -> str:
    """Return the key of a method, or the first word of what stands for one."""
    return str(getattr(method, "key", None) or str(method).split()[0].rstrip("_"))
