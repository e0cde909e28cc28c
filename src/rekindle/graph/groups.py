"""Groups of units, and the slots of tensors that belong to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rekindle.graph.regions import UnitIndex

SlotKind = Literal["weight", "bias", "scale", "shift", "mean", "var"]
GroupKind = Literal["hidden", "stream", "gated", "score", "output"]


@dataclass(frozen=True, eq=False)
class Slot:
    """The elements of one tensor that belong to the units of a group.

    Args:
        tensor: Canonical name.
        kind: What they do for the unit.
        where: Their place; `where.index` maps unit to positions.
        module: Path of the module that uses them; the input of a reader is where the unit's activation can be seen.
        neutral: The value at which a normalization does nothing, if known.
    """

    tensor: str
    kind: SlotKind
    where: UnitIndex
    module: str
    neutral: float | None = None


@dataclass(frozen=True, eq=False)
class Group:
    """Units that are written, normalized and read by the same tensors.

    Units of a group can be scaled, silenced or drawn afresh one by one. They are not interchangeable in general: to let
    two of them change places, slots and all, is a symmetry of the function only within what shares a head (values,
    queries and keys), a group of a grouped or depthwise convolution or of GroupNorm, or an expert of stacked experts,
    and not even there where places count (rotary positions).

    Args:
        name: The first module that writes it.
        size: Number of units.
        kind: "hidden", "stream" (several writers joined by addition), "gated" (joined by a product), "score" (queries
            are incoming, keys outgoing) or "output" (leaves the model, nothing reads it).
        incoming: Weights and biases that write the units.
        norms: Scales, shifts and running statistics on the way.
        outgoing: Weights that read the units.
        through: Names of groups that the units also pass into without a weight (a normalization over both, a gate).
        leaves: Whether the units reach the model's output directly.
    """

    name: str
    size: int
    kind: GroupKind
    incoming: tuple[Slot, ...]
    norms: tuple[Slot, ...]
    outgoing: tuple[Slot, ...]
    through: tuple[str, ...] = ()
    leaves: bool = False


def owner_of(tensor: str) -> str:
    """Return the module that a tensor belongs to, or the tensor's own name where it is not the usual kind.

    Example:
        >>> owner_of("fc1.weight"), owner_of("fc.parametrizations.weight.original0"), owner_of("block.gamma")
        ('fc1', 'fc', 'block.gamma')
    """
    layer, parametrized, _ = tensor.partition(".parametrizations.")
    owner, _, leaf = tensor.rpartition(".")
    if parametrized:
        return layer
    return owner if owner and leaf in ("weight", "bias", "running_mean", "running_var") else tensor
