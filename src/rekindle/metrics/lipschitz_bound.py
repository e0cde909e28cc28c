"""A bound of the Lipschitz constant, from what each operation can do to distances at most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from rekindle.graph import UnitGraph
from rekindle.graph.lipschitz import NOT_FOLLOWED, Own, Step
from rekindle.graph.plain import why_not_plain
from rekindle.kernels.spectra import convolution_bound
from rekindle.metrics._matrices import as_float, groups_of, left_out, spectra
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading

METRIC = MetricCard(
    key="lipschitz_bound",
    title="Lipschitz bound",
    source="Soft Weight Rescaling, App. B, Corollary 2.1, eq. 13",
    what="How much farther apart two outputs can be than their inputs (L2, evaluation mode). Each layer's bound: the "
    "spectral norm of a linear layer; of a convolution the sum over kernel positions, the largest over groups; of a "
    "BatchNorm the largest |scale| / sqrt(variance + epsilon). Other operations by their own: the steepest slope of "
    "an activation, the root of how many windows share an input (pooling, padding, upsampling). One after the other "
    "they multiply, in a sum they add up. Infinite where an operation has no bound or none that is known (LayerNorm, "
    "attention, a product of activations), or the model was not traced: the details name it (why_not), and have the "
    "product of the layers' bounds (product_log10), which then is a bound of nothing.",
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
    """Return the bound of each layer, and that of the model: infinite if there is none, with the reason."""
    steps = inputs.graph.lipschitz.steps
    parts = {weight.name: lipschitz_bound(values, groups_of(weight)) for weight, values in spectra(inputs)}
    norms = [step.own for step in steps if step.own is not None and step.own.stored == "batch_norm"]
    parts |= {own.tensors[-1]: _from_tensors(own, inputs) for own in norms}
    others: list[list[Any]] = []
    log, why_not = _follow(inputs, parts, others)
    details = {
        "log10": log / math.log(10),
        "bounded": not why_not,
        "why_not": why_not,
        "operations": others,
        "product_log10": _total(map(_log, parts.values())) / math.log(10),
        "left_out": left_out(inputs.graph),
    }
    return Reading(METRIC.key, math.exp(log) if log < 709 else log * math.inf, parts, details)


def _follow(inputs: MetricInputs, parts: Mapping[str, float], others: list[list[Any]]) -> tuple[float, str]:
    """Return the logarithm of the bound and, if there is none, why; `others` gets the operations that are no layer."""
    graph = inputs.graph
    if not graph.traced:
        return math.inf, "the model was not traced, so that the order of its layers is not known"
    if graph.not_understood:
        return math.inf, f"{graph.not_understood[0]} is not understood"
    logs, unknown = {NOT_FOLLOWED: 0.0}, dict[int, str]()
    for step in graph.lipschitz.steps:
        factor, why = _own(step, inputs, parts)
        why = next((unknown[n] for n in step.operands if n in unknown), why)
        if not why and (step.own is None or step.own.stored not in ("weight", "batch_norm")) and factor != 1.0:
            others.append([step.location, factor])
        assert step.own is not None or why
        log = math.inf if why or step.own is None else _joined(step.own, factor, [logs[n] for n in step.operands])
        for number in step.results:
            # What is not followed is one value for all: whatever one of them can do counts for the others.
            logs[number] = max(log, logs[number]) if number == NOT_FOLLOWED else log
            if why:
                unknown.setdefault(number, why)
    outputs = graph.lipschitz.outputs
    return _squares(logs[n] for n in outputs), next((unknown[n] for n in outputs if n in unknown), "")


def _own(step: Step, inputs: MetricInputs, parts: Mapping[str, float]) -> tuple[float, str]:
    """Return the factor that an operation has from tensors, times its own if it has one operand; and why not, if so."""
    if step.own is None:
        return math.nan, f"{step.location} has no Lipschitz bound that is known"
    alone = step.own.factors[0] if len(step.own.factors) == 1 else 1.0
    if step.own.stored == "weight":
        return _weight(step, inputs.graph, parts)
    missing = [name for name in step.own.tensors if name not in inputs.tensors]
    if missing:
        return math.nan, f"{step.location} uses {missing[0]}, whose value is not given"
    odd = [name for name in step.own.tensors if why_not_plain(inputs.tensors[name])]
    if odd:
        return math.nan, f"{step.location} uses {odd[0]}: {why_not_plain(inputs.tensors[odd[0]])}"
    return alone * (_from_tensors(step.own, inputs) if step.own.stored else 1.0), ""


def _weight(step: Step, graph: UnitGraph, parts: Mapping[str, float]) -> tuple[float, str]:
    """Return the norm of a layer; a tensor that holds several weights (queries, keys) is at most as large as both."""
    assert step.own is not None
    names = [weight.name for weight in graph.weights_of(step.own.tensors[0])]
    out = [name for name in names if name not in parts]
    if out or not names:
        why = left_out(graph).get(out[0] if out else step.own.tensors[0], "its matrix is not known")
        return math.nan, f"{step.location} uses {step.own.tensors[0]}: {why}"
    return math.hypot(*(parts[name] for name in names)) if len(names) > 1 else parts[names[0]], ""


def _from_tensors(own: Own, inputs: MetricInputs) -> float:
    values = as_float(inputs.tensors[own.tensors[0]])
    if own.stored == "batch_norm":
        factors = (values + own.epsilon).rsqrt()
        scale = as_float(inputs.tensors[own.tensors[1]]).abs() if len(own.tensors) > 1 else 1.0
        return float((factors * scale).amax())
    sizes = values.abs()
    if own.stored == "inverse":
        return float(1 / sizes.amin())
    return max(1.0, float(sizes.amax())) if own.stored == "slope" else float(sizes.amax())


def _joined(own: Own, factor: float, logs: list[float]) -> float:
    """Return the bound of a result from those of the operands, all as logarithms."""
    if len(own.factors) == 1:
        return _total((_log(factor), *logs))
    each = [_total((_log(own_factor), log)) for own_factor, log in zip(own.factors, logs, strict=True)]
    return _total((_log(factor), _squares(each) if own.apart else _sum(each)))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


def _total(logs: Iterable[float]) -> float:
    """Return a sum in which nothing, an exact zero, wins over what is infinite."""
    given = list(logs)
    return -math.inf if -math.inf in given else math.fsum(given) if all(map(math.isfinite, given)) else sum(given)


def _sum(logs: Iterable[float]) -> float:
    """Return the logarithm of a sum."""
    given = list(logs)
    largest = max(given, default=-math.inf)
    if not math.isfinite(largest) or any(map(math.isnan, given)):
        return math.nan if any(map(math.isnan, given)) else largest
    return largest + math.log(sum(math.exp(log - largest) for log in given))


def _squares(logs: Iterable[float]) -> float:
    """Return the logarithm of the root of a sum of squares."""
    return _sum(2 * log for log in logs) / 2
