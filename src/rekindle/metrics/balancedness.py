"""Balancedness: how much smaller the weights could be for the same function, and how layers have drifted apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from rekindle.graph import UnitGraph
from rekindle.graph.groups import Group, Slot
from rekindle.kernels.balance import entrywise_norm, layer_balance, least_chain, rescaling
from rekindle.kernels.isometry import PIECE, frobenius_norm
from rekindle.metrics._matrices import as_float, effective, matrix_pairs, weights_of
from rekindle.metrics._units import scale_slots, unit_factors, unit_sums, weight_slots
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

SWEEPS, TOLERANCE = 200, 1e-5

METRIC = MetricCard(
    key="balancedness",
    title="Balancedness",
    source="Soft Weight Rescaling, C.1 (eq. 16), C.2 (Definition 2); Saul (2023), Algorithm 1",
    what="The entry-wise l_2,2 norm of the weights over the least one of any network with the same function, found by "
    "rescaling units (incoming weights times a, outgoing divided by a). A group's reading is the same with all "
    "other groups held. Counted are the weights of groups whose units can be rescaled: homogeneous activations, "
    "hidden or a residual stream without normalization, no tied weights; after a normalization its scale takes "
    "the incoming weights' place. The others are in details: left_out. With a reference, details: b_t holds |r_t "
    "- r_0|, r the ratio of the norms of two layers that follow each other.",
    unit="ratio",
    direction="lower",
    range=(1.0, math.inf),
    needs=("weights", "units"),
    known="Training with plain gradient descent keeps the balance it starts with; noise and adaptive steps change it. "
    "Soft Weight Rescaling improves it and the test accuracy together (Fig. 5); that it predicts plasticity is "
    "not shown.",
)


def balancedness(weights: Sequence[Tensor], p: float = 2.0, q: float = 2.0) -> float:
    """Return |W|_{p,q} over its least value, for the matrices [out, in] of layers one after the other.

    Example:
        >>> round(balancedness([torch.tensor([[4.0]]), torch.tensor([[1.0]])]), 4)  # sqrt(17) over sqrt(8)
        1.4577
    """
    least = entrywise_norm(least_chain(weights, p, q), p, q)
    return entrywise_norm(weights, p, q) / least if least else 1.0


def measure(inputs: MetricInputs) -> Reading:
    """Return each group's norm over what it could be with the others held, and the model's over its least."""
    reasons = {group.name: _not_rescalable(inputs.graph, group) for group in inputs.graph.groups}
    groups = [group for group in inputs.graph.groups if not reasons[group.name]]
    network = _Network(inputs, groups)
    parts = {group.name: _ratio(*network.sides(group)) for group in groups}
    before = network.square()
    sweeps = network.balance()
    least = network.square()
    details = {
        "left_out": {name: reason for name, reason in reasons.items() if reason},
        "sweeps": sweeps,
        "factors": {name: factor.tolist() for name, factor in network.factors.items()},
        **({"b_t": _drift(inputs)} if inputs.reference is not None else {}),
    }
    return Reading(METRIC.key, math.sqrt(before / least) if least else 1.0, parts, details)


def _ratio(incoming: Tensor, outgoing: Tensor) -> float:
    factor = rescaling(incoming, outgoing, 0.25)
    least = float((incoming * factor.square() + outgoing / factor.square()).sum())
    return math.sqrt(float((incoming + outgoing).sum()) / least) if least else 1.0


def _not_rescalable(graph: UnitGraph, group: Group) -> str:
    """Return why a group's units cannot be rescaled without a change of the function; empty if they can."""
    if group.kind not in ("hidden", "stream") or group.leaves or group.through or not group.outgoing:
        return f"its units are {group.kind}, or leave by another way than weights"
    if places := graph.non_homogeneous.get(group.name):
        return f"passes {places[0]}"
    every = (*group.incoming, *group.norms, *group.outgoing)
    if odd := next((slot.tensor for slot in every if slot.tensor in graph.not_plain), ""):
        return f"{odd}: {graph.not_plain[odd]}"
    if any(weight.tied or weight.computed for slot in _slots(graph, group) for weight in graph.weights_of(slot.tensor)):
        return "has a tied or computed weight"
    normalized = [slot for slot in group.norms if slot.kind != "shift"]
    if not normalized:
        return ""
    one = len(scale_slots(group)) == len({slot.module for slot in normalized}) == 1
    if group.kind == "stream" or not one or len(weight_slots(graph, group.outgoing)) != 1:
        return "is normalized several times, or for some of its readers only"
    return ""


def _slots(graph: UnitGraph, group: Group) -> list[Slot]:
    return [*weight_slots(graph, group.incoming), *scale_slots(group), *weight_slots(graph, group.outgoing)]


class _Network:
    """Weights with the factors of their units, read tensor by tensor at every look."""

    def __init__(self, inputs: MetricInputs, groups: list[Group]) -> None:
        self.inputs, self.groups = inputs, groups
        self.factors = {group.name: torch.ones(group.size, dtype=torch.float64) for group in groups}
        self.uses: dict[str, list[tuple[str, Slot, int]]] = {}  # tensor -> (group, slot, power of the factor)
        self.incoming = {g.name: scale_slots(g) or weight_slots(inputs.graph, g.incoming) for g in groups}
        self.outgoing = {g.name: weight_slots(inputs.graph, g.outgoing) for g in groups}
        for power, side in ((1, self.incoming), (-1, self.outgoing)):
            for name, slots in side.items():
                for slot in slots:
                    self.uses.setdefault(slot.tensor, []).append((name, slot, power))

    def squares(self, tensor: str) -> Tensor:
        """Return the squares of a tensor's elements, rescaled."""
        held = self.inputs.graph.weights_of(tensor)
        values = effective(self.inputs.tensors, held[0]) if held else as_float(self.inputs.tensors[tensor])
        shape, values = values.shape, values.square()
        for name, slot, power in self.uses[tensor]:
            factors = self.factors[name].to(values).pow(2 * power)
            values = values.reshape(slot.where.view).mul_(unit_factors(slot.where, factors))
        return values.reshape(shape)

    def square(self) -> float:
        """Return the squared norm of all weights that are counted."""
        return math.fsum(
            float(piece.double().sum())  # piece by piece: float64 of a whole tensor would be twice its size
            for tensor in self.uses
            for piece in self.squares(tensor).reshape(-1).split(PIECE)
        )

    def sides(self, group: Group) -> tuple[Tensor, Tensor]:
        """Return for each unit the squared norm of what comes in and of what goes out."""
        incoming, outgoing = (
            sum((self._sums(slot) for slot in side[group.name]), torch.zeros(group.size, dtype=torch.float64))
            for side in (self.incoming, self.outgoing)
        )
        return incoming, outgoing

    def _sums(self, slot: Slot) -> Tensor:
        return unit_sums(slot.where, self.squares(slot.tensor)).double().cpu()

    def _power(self, group: Group) -> float:
        """Return 1/(2p): the minimum over a group. A weight from a group to itself needs Saul's 1/(4p), which holds."""
        sides = ({slot.tensor for slot in side[group.name]} for side in (self.incoming, self.outgoing))
        return 1 / 8 if set.intersection(*sides) else 1 / 4

    def balance(self) -> int:
        """Minimize over one group after the other until nothing moves; return the number of sweeps."""
        for sweep in range(SWEEPS):
            moved = 0.0
            for group in self.groups:
                factor = rescaling(*self.sides(group), self._power(group))
                self.factors[group.name] *= factor
                moved = max(moved, float(factor.log().abs().max()))
            if moved < TOLERANCE:
                return sweep + 1
        return SWEEPS


def _drift(inputs: MetricInputs) -> dict[str, float]:
    """Return b_t of each two weights that follow each other in order of execution."""
    names, now, before = [], [], []
    for weight, new, old in matrix_pairs(inputs, weights_of(inputs.graph)):
        names.append(weight.name)
        now.append(frobenius_norm(new))
        before.append(frobenius_norm(old))
    pairs = zip(pairwise(names), pairwise(before), pairwise(now), strict=True)
    return {f"{first} | {second}": layer_balance(old, new) for (first, second), old, new in pairs}
