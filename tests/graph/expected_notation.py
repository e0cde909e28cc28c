"""How expected unit groups are written down.

A group is its units, what writes them (`incoming`), what normalizes them (`norms`) and what reads them (`outgoing`), as
names of tensors. `at` says, where it is not obvious, which elements belong to which unit: per side and tensor a view,
the dimensions that hold units, and for each unit its indices along those.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    view: tuple[int, ...]
    dims: tuple[int, ...]
    index: list[list[int]]  # [units][repeat]


@dataclass(frozen=True)
class G:
    units: int
    incoming: set[str]
    outgoing: set[str] = field(default_factory=set)
    norms: set[str] = field(default_factory=set)
    kind: str = "hidden"
    at: dict[tuple[str, str], Place] = field(default_factory=dict)


def wb(*layers: str) -> set[str]:
    return {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}


def w(*layers: str) -> set[str]:
    return {f"{layer}.weight" for layer in layers}


def bn(*layers: str) -> set[str]:
    return wb(*layers) | {f"{layer}.{kind}" for layer in layers for kind in ("running_mean", "running_var")}


def rows(units: int, first: int = 0) -> list[list[int]]:
    """One index a unit, counted from `first`."""
    return [[first + unit] for unit in range(units)]


def flattened(units: int, positions: int) -> list[list[int]]:
    """Channel by channel, all positions of it."""
    return [[unit * positions + position for position in range(positions)] for unit in range(units)]
