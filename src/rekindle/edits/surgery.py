"""Changes of structure as values: a part put beside a module, before it or behind it, parameters that stop learning.

Surgery is part of a plan as edits are. `edits/operate.py` carries it out; what is put into a model stands in
`edits/inserted.py`. Classes of the user are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

Side = Literal["before", "after"]


@dataclass(frozen=True, eq=False)
class Twins:
    """A new trainable copy of a module, and a frozen copy of that copy which is subtracted.

    Args:
        template: Path of the module that is copied.
        draws: For tensors of the copy, by their name in it: function from the old value to a fresh one.
    """

    template: str
    draws: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """Return what it is."""
        return "a new trainable copy minus its frozen twin"


@dataclass(frozen=True)
class Standardize:
    """A fixed scalar normalization (x - mean) / std of what a module gives, or of what it reads.

    Args:
        mean: What is subtracted.
        std: What is divided by.
        side: After the module (its output) or before it (its first argument).
    """

    mean: float
    std: float
    side: Side = "after"

    def __str__(self) -> str:
        """Return what it is."""
        return f"(x - {self.mean:.4g}) / {self.std:.4g} {self.side} it"


@dataclass(frozen=True, eq=False)
class Surgery:
    """One change of structure.

    Args:
        module: Path of the module.
        put: What is put there; None where parameters are only frozen.
        freezes: Parameters that stop learning: no gradient, out of the optimizer, their state dropped.
        reason: Why, in a few words; the method's key if left out.
    """

    module: str
    put: Twins | Standardize | None
    freezes: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        """Return what is put where."""
        parts = [str(self.put)] if self.put is not None else []
        parts += [f"{len(self.freezes)} parameters frozen"] if self.freezes else []
        return f"{self.module}: {', '.join(parts)} ({self.reason})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a log or a file."""
        return {"module": self.module, "put": str(self.put), "freezes": list(self.freezes), "reason": self.reason}
