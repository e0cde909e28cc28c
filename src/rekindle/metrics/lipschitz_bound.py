"""A bound of the Lipschitz constant: the product of the layers' spectral norms."""

from __future__ import annotations

import math

from torch import Tensor

from rekindle.graph import UnitGraph
from rekindle.graph.groups import Group, Slot
from rekindle.graph.scaling.solve import prepare, wishes_of
from rekindle.kernels.spectra import convolution_bound
from rekindle.metrics._matrices import as_float, groups_of, left_out, spectra
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

EPSILON = 1e-5  # what BatchNorm adds to the variance by default

METRIC = MetricCard(
    key="lipschitz_bound",
    title="Lipschitz bound",
    source="Soft Weight Rescaling, App. B, Corollary 2.1, eq. 13",
    what="Each layer's bound: the spectral norm of a linear layer; of a convolution the sum over kernel positions, "
    "the largest over groups; of a BatchNorm in evaluation mode the largest |scale| / sqrt(variance + 1e-5). The "
    "model's is their product. It bounds the network only where layers follow one another with 1-Lipschitz "
    "functions between them (details: chain, and why not); elsewhere it is the product and no more. In details "
    "also log10.",
    unit="output per input",
    direction="lower",
    range=(0.0, math.inf),
    needs=("weights",),
    known="A loose bound: often many orders above the true constant, and growing with depth. A sharp rise against the "
    "initial value says that norms have blown up; the number alone says little.",
)


def lipschitz_bound(singular: Tensor, groups: int = 1) -> float:
    """Return the bound of one layer from the singular values [groups * positions, k] of its matrices.

    Example:
        >>> import torch
        >>> lipschitz_bound(torch.tensor([[3.0, 1.0]])), lipschitz_bound(torch.tensor([[3.0], [4.0]]), groups=2)
        (3.0, 4.0)
    """
    return float(convolution_bound(singular, groups))


def measure(inputs: MetricInputs) -> Reading:
    """Return the bound of each layer, and their product."""
    parts = {weight.name: lipschitz_bound(values, groups_of(weight)) for weight, values in spectra(inputs)}
    for group in inputs.graph.groups:
        for var, scale in _batch_norms(group):
            factors = (as_float(inputs.tensors[var.tensor]) + EPSILON).rsqrt()
            if scale:
                factors = factors * as_float(inputs.tensors[scale.tensor]).abs()
            parts[scale.tensor if scale else var.tensor] = float(factors.amax())
    logs = [math.log10(part) if part > 0 else -math.inf if part == 0 else math.nan for part in parts.values()]
    total = math.fsum(logs) if all(map(math.isfinite, logs)) else sum(logs)
    reason = _not_a_chain(inputs.graph)
    details = {"log10": total, "chain": not reason, "why_not": reason, "left_out": left_out(inputs.graph)}
    return Reading(METRIC.key, 10**total if total < 308 else total * math.inf, parts, details)


def _batch_norms(group: Group) -> list[tuple[Slot, Slot | None]]:
    """Return the running variance of each BatchNorm of a group, and its scale if it has one."""
    scales = {slot.module: slot for slot in group.norms if slot.kind == "scale"}
    return [(slot, scales.get(slot.module)) for slot in group.norms if slot.kind == "var"]


def _not_a_chain(graph: UnitGraph) -> str:
    """Return why the product is no bound of the network; empty if it is one."""
    if not graph.traced:
        return "the model was not traced, so that the order of its layers is not known"
    if graph.uncovered or graph.not_understood or left_out(graph):
        return "it has parameters or parts that are not in the product"
    for group in graph.groups:
        if why := _not_a_link(graph, group):
            return f"{group.name}: {why}"
    normalized = any(slot.kind == "var" for group in graph.groups for slot in group.norms)
    powers = prepare(graph, wishes_of(graph)).output
    # A normalization without parameters has no slot, but hides the size of every weight before it.
    return "" if normalized or bool((powers == 1).all()) else "the output is not in proportion to each weight"


def _not_a_link(graph: UnitGraph, group: Group) -> str:
    if group.kind not in ("hidden", "output") or group.through:
        return f"its units are {group.kind}" + (" and joined with others" if group.through else "")
    if group.non_homogeneous:
        return f"passes {group.non_homogeneous[0]}, whose Lipschitz constant is not known"
    writers, readers = (
        {slot.tensor for slot in slots if slot.kind == "weight" and slot.tensor not in graph.gains}
        for slots in (group.incoming, group.outgoing)
    )
    if len(writers) != 1 or len(readers) + group.leaves != 1:
        return f"has {len(writers)} writers and {len(readers)} readers"
    scales = [slot for slot in group.norms if slot.kind in ("scale", "shift")]
    normalized = {var.module for var, _ in _batch_norms(group)}
    if any(slot.module not in normalized for slot in scales):
        return "is normalized by its own values, or multiplied by a factor"
    return ""
