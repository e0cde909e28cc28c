"""What a Keeper tells of what it did between two steps: few words, because it may happen at every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rekindle.text import counted


@dataclass(frozen=True)
class RecyclingRecord:
    """One time that a method recycled units, or drew weights afresh, after a step of training.

    Attributes:
        step: The Keeper's step.
        method: The method, as a spec string.
        units: Numbers of the recycled units by group; empty for a method that draws single weights.
        held_back: Units that were chosen and left for another time, because they would have lost all their inputs.
        tensors: Names of the tensors that were edited.
        notices: What became of the optimizer's state.
        skipped: In the first record of a Keeper: groups and parameters that recyclers cannot treat, with the reason.
    """

    step: int
    method: str
    units: Mapping[str, tuple[int, ...]]
    held_back: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tensors: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return it in a line."""
        groups = ", ".join(f"{name} {len(units)}" for name, units in self.units.items())
        what = f"recycled {groups}" if groups else f"drew weights of {counted(self.tensors)} afresh"
        held = sum(map(len, self.held_back.values()))
        return f"step {self.step}: {self.method} {what}" + (f"; {held} units held back" if held else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a log or a file."""
        return asdict(self)
