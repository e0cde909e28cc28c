"""The unit graph: weights, groups of units with their slots, and what is not covered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from rich.table import Table
from torch import Tensor, nn

from rekindle.core.seeds import generator
from rekindle.core.show import render
from rekindle.core.where import MatrixView, UnitIndex
from rekindle.graph.initialisers import Law
from rekindle.graph.weight import Weight

if TYPE_CHECKING:
    from rekindle.graph.verify import Verification

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
        neutral: The value at which a normalisation does nothing, if known.
    """

    tensor: str
    kind: SlotKind
    where: UnitIndex
    module: str
    neutral: float | None = None


@dataclass(frozen=True, eq=False)
class Group:
    """Units that are written, normalised and read by the same tensors.

    Args:
        name: The first module that writes it.
        size: Number of units.
        kind: "hidden", "stream" (several writers joined by addition), "gated" (joined by a product), "score" (queries
            are incoming, keys outgoing) or "output" (leaves the model, nothing reads it).
        incoming: Weights and biases that write the units.
        norms: Scales, shifts and running statistics on the way.
        outgoing: Weights that read the units.
        through: Names of groups that the units also pass into without a weight (a normalisation over both, a gate).
        leaves: Whether the units reach the model's output directly.
        curved: Where the units pass something that is not positively homogeneous of degree one ("module: operation"):
            a gelu, a softmax, a product of two activations, a constant that is added. Empty: nothing of the kind.
    """

    name: str
    size: int
    kind: GroupKind
    incoming: tuple[Slot, ...]
    norms: tuple[Slot, ...]
    outgoing: tuple[Slot, ...]
    through: tuple[str, ...] = ()
    leaves: bool = False
    curved: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Block:
    """Elements of a tensor that are only ever multiplied together.

    Args:
        variable: Number of the logarithm of their factor.
        mask: Which elements, broadcastable to the tensor; None for all of it.
    """

    variable: int
    mask: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Sizes:
    """How the sizes of tensors hang together, if the function is only to be scaled by one constant.

    Args:
        blocks: For each parameter and running statistic that the forward pass uses, its blocks.
        equations: Sums of variables (number to coefficient) that are zero.
        output: The sum of variables that is the logarithm of the model's constant.
    """

    blocks: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    equations: tuple[Mapping[int, float], ...] = ()
    output: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class UnitGraph:
    """What `trace` found.

    Attributes:
        weights: Every weight, in order of execution.
        groups: Every group of units, in order of execution; empty when the model was only scanned.
        uncovered: Parameters without a slot, with the reason.
        not_understood: Parts that were left out ("module: operation"), with `strict=False` only.
        aliases: Canonical name to the other names of a tied tensor.
        laws: How each tensor is drawn afresh.
        gains: For each gain of weight_norm its direction and dimension.
        parameters: Shape of each parameter.
        traced: Whether the model was run through (roles and groups are known) or only scanned.
        sizes: By what tensors may be multiplied so that the function stays in proportion; see `graph.scaling`.
    """

    weights: tuple[Weight, ...]
    groups: tuple[Group, ...]
    uncovered: Mapping[str, str]
    not_understood: tuple[str, ...]
    aliases: Mapping[str, tuple[str, ...]]
    laws: Mapping[str, Law]
    gains: Mapping[str, tuple[str, int]]
    parameters: Mapping[str, tuple[int, ...]]
    traced: bool = True
    sizes: Sizes = field(default_factory=Sizes)
    _by_name: dict[str, Group] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Index the groups."""
        self._by_name.update({group.name: group for group in self.groups})

    def group(self, name: str) -> Group:
        """Return a group by its name."""
        return self._by_name[name]

    def weights_of(self, tensor: str) -> tuple[Weight, ...]:
        """Return the weights that are stored in a tensor."""
        return tuple(weight for weight in self.weights if weight.tensor == tensor)

    def views(self) -> dict[str, list[MatrixView]]:
        """Return the matrices that each tensor holds, embeddings left out."""
        found: dict[str, list[MatrixView]] = {}
        for weight in self.weights:
            if weight.role != "embedding":
                found.setdefault(weight.tensor, []).append(weight.view)
        return found

    def has_law(self, tensor: str) -> bool:
        """Tell whether it is known how a tensor is drawn afresh."""
        return (self.gains[tensor][0] if tensor in self.gains else tensor) in self.laws

    def statistics(self) -> list[str]:
        """Return the running statistics of normalisation layers: what is drawn afresh and no parameter."""
        return [name for name in self.laws if name not in self.parameters]

    def fresh(self, tensor: str, shape: tuple[int, ...], seed: int, reason: str) -> Tensor | None:
        """Draw a tensor afresh by its own law, float32 on the CPU; None where no law is known.

        The gain of weight_norm is the norm of its direction's draw, so that the weight itself has its layer's law.
        """
        if tensor in self.gains:
            direction, dim = self.gains[tensor]
            drawn = self.fresh(direction, self.parameters[direction], seed, reason)
            return None if drawn is None else torch.norm_except_dim(drawn, 2, dim).reshape(shape)
        law = self.laws.get(tensor)
        return None if law is None else law.draw(shape, generator(seed, tensor, reason))

    def verify(self, model: nn.Module, example: Any, *, seed: int = 0) -> Verification:
        """Prove the graph on the model itself; see `rekindle.graph.verify.verify`."""
        from rekindle.graph.verify import verify

        return verify(self, model, example, seed=seed)

    def __str__(self) -> str:
        """Return the graph as tables."""
        lines = [render(_groups_table(self.groups))] if self.groups else []
        lines.append(render(_weights_table(self.weights)))
        lines += [f"no slot: {name}: {why}" for name, why in self.uncovered.items()]
        lines += [f"not understood, left out: {part}" for part in self.not_understood]
        return "\n".join(lines)


def _groups_table(groups: tuple[Group, ...]) -> Table:
    table = Table(title=f"{len(groups)} unit groups", title_justify="left")
    for name in ("group", "units", "kind", "written by", "normalised by", "read by"):
        table.add_column(name, justify="right" if name == "units" else "left", overflow="fold")
    for group in groups:
        table.add_row(
            group.name,
            str(group.size),
            group.kind,
            _writers(group.incoming),
            _writers(group.norms),
            _writers(group.outgoing) + "".join(f" (through {name})" for name in group.through)
            or ("model output" if group.leaves else "nothing"),
        )
    return table


def _writers(slots: tuple[Slot, ...]) -> str:
    """Return modules with what of them is meant: `conv1` stands for its weight and bias."""
    shown: dict[str, int] = {}
    for slot in slots:
        label = owner_of(slot.tensor)
        times = slot.where.index.shape[1]
        shown[label] = max(shown.get(label, 1), times)
    return ", ".join(label if times == 1 else f"{label} (x{times})" for label, times in shown.items())


def owner_of(tensor: str) -> str:
    """Return the module that a tensor belongs to, or the tensor's own name where it is not the usual kind.

    Example:
        >>> owner_of("fc1.weight"), owner_of("fc.parametrizations.weight.original0"), owner_of("block.gamma")
        ('fc1', 'fc', 'block.gamma')
    """
    layer, parametrised, _ = tensor.partition(".parametrizations.")
    owner, _, leaf = tensor.rpartition(".")
    if parametrised:
        return layer
    return owner if owner and leaf in ("weight", "bias", "running_mean", "running_var") else tensor


def _weights_table(weights: tuple[Weight, ...]) -> Table:
    table = Table(title=f"{len(weights)} weights", title_justify="left")
    for name in ("weight", "role", "matrices", "out", "in", "fan-in"):
        table.add_column(name, justify="left" if name in ("weight", "role") else "right", overflow="fold")
    for weight in weights:
        batch, out, in_ = weight.sizes
        role = weight.role + (" (tied)" if weight.tied else "") + (" (weight_norm)" if weight.gain else "")
        table.add_row(weight.name, role, str(batch), str(out), str(in_), str(weight.fan_in))
    return table
