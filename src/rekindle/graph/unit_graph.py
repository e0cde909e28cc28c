"""The unit graph: weights, groups of units with their slots, and what is not covered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from rekindle.graph.groups import Group, Slot, owner_of
from rekindle.graph.initializers import Initializer
from rekindle.graph.lazy import Lazy, known
from rekindle.graph.lipschitz.steps import Steps
from rekindle.graph.regions import MatrixView
from rekindle.graph.scaling.constraints import Homogeneity, ScaleConstraints
from rekindle.graph.verification import Verification, verify
from rekindle.graph.weight import Weight
from rekindle.seeds import generator
from rekindle.text import render

OUTSIDE = "not used in the forward pass of this example"
NO_AXIS = "used in a way that gives it no unit axis"


@dataclass(frozen=True, eq=False)
class UnitGraph:
    """What `trace` found.

    Attributes:
        weights: Every weight, in order of execution.
        groups: Every group of units, in order of execution; empty when the model was only scanned.
        uncovered: Parameters without a slot, with the reason; and all of `not_plain`.
        not_understood: Parts that were left out ("module: operation", "module: left out, because forward branches on
            data at net.py:12"), with `strict=False` only.
        aliases: Canonical name to the other names of a tied tensor.
        initializers: How each tensor is drawn afresh.
        gains: For each gain of weight_norm its direction and dimension.
        parameters: Shape of each parameter.
        notes: What of the example or the output is no part of the graph, and why.
        traced: Whether the model was run through (roles and groups are known) or only scanned.
        roles_known: Whether it is certain which weights are queries and keys: traced with all products of activations
            seen, or told by names without doubt.
        maybe_first: Tensors of which a trace did not see what they read, so that they may read the model's input
            whatever their role says, with the reason; see `graph.unsure`.
        maybe_last: Tensors of which it did not see what their outputs are for, so that they may write the model's
            output whatever their role says, with the reason.
        unclear: Tensors that may hold several matrices which only a trace can tell apart, with the reason.
        homogeneity: What `scale_constraints` and `non_homogeneous` read, computed then.
        steps: What `lipschitz` reads, computed then.
        not_plain: Tensors that hold no plain floats, with the reason; see `graph.plain`. They are parameters like
            others and may have slots, but no weight and no initializer: nothing is computed from their values.
        adapters: Parameters that belong to an adapter of PEFT, with the reason to leave them alone; see
            `graph.adapters`. They have weights and slots like others.
    """

    weights: tuple[Weight, ...]
    groups: tuple[Group, ...]
    uncovered: Mapping[str, str]
    not_understood: tuple[str, ...]
    aliases: Mapping[str, tuple[str, ...]]
    initializers: Mapping[str, Initializer]
    gains: Mapping[str, tuple[str, int]]
    parameters: Mapping[str, tuple[int, ...]]
    traced: bool = True
    notes: tuple[str, ...] = ()
    roles_known: bool = True
    unclear: Mapping[str, str] = field(default_factory=dict)
    maybe_first: Mapping[str, str] = field(default_factory=dict)
    maybe_last: Mapping[str, str] = field(default_factory=dict)
    homogeneity: Lazy[Homogeneity] = field(default_factory=lambda: known(Homogeneity()), repr=False)
    steps: Lazy[Steps] = field(default_factory=lambda: known(Steps()), repr=False)
    not_plain: Mapping[str, str] = field(default_factory=dict)
    adapters: Mapping[str, str] = field(default_factory=dict)
    _by_name: dict[str, Group] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Index the groups."""
        self._by_name.update({group.name: group for group in self.groups})

    @property
    def scale_constraints(self) -> ScaleConstraints:
        """By what tensors may be multiplied so that the function stays in proportion; see `graph.scaling`."""
        return self.homogeneity.get().constraints

    @property
    def non_homogeneous(self) -> Mapping[str, tuple[str, ...]]:
        """Where the units of a group pass something that is not positively homogeneous of degree one, by its name.

        "module: operation": a gelu, a softmax, a product of two activations, an added constant. Empty: nothing of it.
        """
        return self.homogeneity.get().non_homogeneous

    @property
    def lipschitz(self) -> Steps:
        """The computation as steps, by how much each can spread two inputs apart; see `graph.lipschitz`."""
        return self.steps.get()

    @property
    def outside(self) -> frozenset[str]:
        """Parameters that the forward pass of the example does not use."""
        return frozenset(name for name, why in self.uncovered.items() if why == OUTSIDE)

    def leaving_out(self, not_plain: Mapping[str, str]) -> UnitGraph:
        """Return the graph without weights and initializers of tensors that hold no plain floats, with the reasons."""
        if not not_plain:
            return self
        gone = {w.tensor for w in self.weights if w.gain is not None and w.gain[0] in not_plain} | set(not_plain)
        empty = {name for name, shape in self.parameters.items() if 0 in shape}  # no pass uses what has no values
        told = {name: why for name, why in not_plain.items() if name in empty or name not in self.outside}
        return replace(
            self,
            weights=tuple(weight for weight in self.weights if weight.tensor not in gone),
            initializers={name: one for name, one in self.initializers.items() if name not in gone},
            uncovered={**self.uncovered, **told},
            not_plain={**self.not_plain, **not_plain},
        )

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

    def has_initializer(self, tensor: str) -> bool:
        """Tell whether it is known how a tensor is drawn afresh."""
        return (self.gains[tensor][0] if tensor in self.gains else tensor) in self.initializers

    def statistics(self) -> list[str]:
        """Return the running statistics of normalization layers: what is drawn afresh and no parameter."""
        return [name for name in self.initializers if name not in self.parameters]

    def fresh(self, tensor: str, shape: tuple[int, ...], seed: int, reason: str) -> Tensor | None:
        """Draw a tensor afresh by its own initializer, float32 on the CPU; None where no initializer is known.

        The gain of weight_norm is the norm of its direction's draw, so that the weight itself is drawn as its
        layer draws it.
        """
        if tensor in self.gains:
            direction, dim = self.gains[tensor]
            drawn = self.fresh(direction, self.parameters[direction], seed, reason)
            return None if drawn is None else torch.norm_except_dim(drawn, 2, dim).reshape(shape)
        initializer = self.initializers.get(tensor)
        return None if initializer is None else initializer.draw(shape, generator(seed, tensor, reason))

    def verify(self, model: nn.Module, example: Any, *, seed: int = 0) -> Verification:
        """Prove the graph on the model itself; see `rekindle.graph.verification`."""
        return verify(self, model, example, seed=seed)

    def __str__(self) -> str:
        """Return the graph as tables."""
        lines = [render(_groups_table(self.groups))] if self.groups else []
        lines.append(render(_weights_table(self.weights)))
        lines += [f"no slot: {name}: {why}" for name, why in self.uncovered.items()]
        lines += [f"not understood, left out: {part}" for part in self.not_understood]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def _groups_table(groups: tuple[Group, ...]) -> Table:
    table = Table(title=f"{len(groups)} unit groups", title_justify="left")
    for name in ("group", "units", "kind", "written by", "normalized by", "read by"):
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


def _weights_table(weights: tuple[Weight, ...]) -> Table:
    table = Table(title=f"{len(weights)} weights", title_justify="left")
    for name in ("weight", "role", "matrices", "out", "in", "fan-in"):
        table.add_column(name, justify="left" if name in ("weight", "role") else "right", overflow="fold")
    for weight in weights:
        batch, out, in_ = weight.sizes
        role = weight.role + (" (tied)" if weight.tied else "") + (" (weight_norm)" if weight.gain else "")
        table.add_row(weight.name, role, str(batch), str(out), str(in_), str(weight.fan_in))
    return table
