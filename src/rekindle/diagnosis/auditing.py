"""Audit: has this network lost its plasticity, where, and what would help."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

from rekindle.checkpoint.read import open_checkpoint, parted
from rekindle.diagnosis.findings import Finding, find
from rekindle.errors import RekindleError
from rekindle.graph import UnitGraph
from rekindle.graph.modules import tensors_of
from rekindle.graph.plain import not_plain, shapes_of, valueless
from rekindle.graph.scan_state_dict import scan_state_dict
from rekindle.graph.surroundings import restored_on_failure
from rekindle.graph.unwrap import bare, refuse_sharded
from rekindle.kernels.finite import finite
from rekindle.methods.planning import graph_of, refuse_other_graph
from rekindle.metrics.features import gather_features
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading
from rekindle.metrics.registry import list_metrics, metric, metric_keys
from rekindle.observe import Loss, Reference, gather
from rekindle.observe.batches import in_plain_dicts, inputs_of, split
from rekindle.observe.losses import default_loss
from rekindle.text import number, render

COMPARED = ("dormant", "zero_activation", "effective_rank", "srank", "weight_norm", "dfi", "frozen")
BATCHES = 64  # most batches that are kept for metrics of the loss


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found; prints as tables.

    Attributes:
        subject: What was looked at, in a word.
        readings: By metric.
        fresh: The same for a fresh network of the same class, as far as rules compare with it.
        skipped: Metrics that were not run, with the reason.
        findings: What the rules say, serious first.
        left_out: Tensors that no metric of weights looks at, because they hold no plain floats, with the reason.
    """

    subject: str
    readings: Mapping[str, Reading]
    fresh: Mapping[str, Reading]
    skipped: Mapping[str, str]
    findings: tuple[Finding, ...]
    graph: UnitGraph | None = field(default=None, repr=False)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether no rule found anything."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "subject": self.subject,
            "findings": [finding.to_dict() for finding in self.findings],
            "readings": {key: _reading(reading) for key, reading in self.readings.items()},
            "fresh": {key: _reading(reading) for key, reading in self.fresh.items()},
            "skipped": dict(self.skipped),
            "left_out": dict(self.left_out),
        }

    def to_json(self, path: str | Path) -> Path:
        """Write the audit as JSON; numbers that are not finite become null."""
        path = Path(path)
        path.write_text(json.dumps(_plain(self.to_dict()), indent=1, allow_nan=False), encoding="utf-8")
        return path

    def to_html(self, path: str | Path) -> Path:
        """Write the audit as one self-contained page."""
        from rekindle.pages.audit_page import write_audit_page

        return write_audit_page(self, path)

    def __str__(self) -> str:
        """Return findings and readings as text."""
        lines = [f"Audit of {self.subject}"]
        lines += [f"{f.severity}: {f.sentence}.\n    {f.advice}. ({f.source})" for f in self.findings]
        if not self.findings:
            lines.append(f"nothing found by {len(self.readings)} metrics")
        table = Table(title="Readings", title_justify="left")
        for name in ("metric", "reading", "fresh", "unit", "better", "worst part"):
            table.add_column(name, overflow="fold", justify="right" if name in ("reading", "fresh") else "left")
        cards = {card.key: card for card in list_metrics()}
        for key, reading in self.readings.items():
            fresh = number(self.fresh[key].summary) if key in self.fresh else ""
            card = cards[key]
            row = (key, number(reading.summary), fresh, card.unit, card.direction, worst_part(card, reading))
            table.add_row(*row)
        lines.append(render(table))
        lines += [f"not run: {key}: {reason}" for key, reason in self.skipped.items()]
        lines += [f"left out: {name}: {reason}" for name, reason in self.left_out.items()]
        lines += [f"note: {note}" for note in (self.graph.notes if self.graph is not None else ())]
        return "\n".join(lines)


def worst_part(card: MetricCard, reading: Reading) -> str:
    """Return the part with the worst value, where one direction is better."""
    if not reading.parts or card.direction == "neither":
        return ""
    pick = min if card.direction == "higher" else max
    return pick(reading.parts, key=lambda name: reading.parts[name])


def audit(
    model: nn.Module | Mapping[str, Tensor] | str | os.PathLike[str],
    data: Iterable[Any] | None = None,
    *,
    example: Any = None,
    graph: UnitGraph | None = None,
    loss: Loss | None = None,
    reference: Reference | None = None,
    metrics: Sequence[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    compare: bool = True,
    probe: bool = True,
    seed: int = 0,
    progress: bool = False,
) -> Audit:
    """Look at a model, a state dict or a checkpoint with every metric whose needs are met.

    Args:
        model: The model; or a state dict; or the path of a checkpoint (weights only, tensor by tensor).
        data: Batches, for metrics of activations and of the loss: (inputs, targets), dicts (with `labels`), or tensors.
        example: Input for the model, from which its structure is traced; the first batch of the data, if left out.
        graph: The model's graph, if it was traced before; beside a state dict or a checkpoint it tells of units.
        loss: Function (model, batch) -> scalar, a mean over the samples of the batch. Left out: the model's own loss
            where it gives one, else the cross entropy of its logits and integer targets.
        reference: Initial weights: a state dict, a model, or a function that builds a fresh model.
        metrics: Keys of metrics; all by default.
        thresholds: By rule, instead of those in `metrics.findings.RULES`.
        compare: Look at a fresh network of the same class too, which the rules compare with.
        probe: Run the trainability probe, which trains copies for a few steps.
        seed: Seed of every draw.
        progress: Show a progress bar.

    Raises:
        RekindleError: Something cannot be looked at, or the graph is that of another model.

    Example:
        >>> net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        >>> audit(net, example=torch.zeros(1, 8)).healthy
        True
        >>> _ = net[0].weight.data.mul_(20)
        >>> [finding.rule for finding in audit(net, example=torch.zeros(1, 8)).findings]
        ['large_norms']
    """
    wanted = _wanted(metrics, probe)
    with restored_on_failure(model if isinstance(model, nn.Module) else None):
        inputs, named = _inputs_of(model, data, example, graph, loss, reference, seed)
        _refuse_not_finite(inputs.tensors, inputs.graph.not_plain)
        fresh = _fresh_inputs(inputs) if compare else None
        steps = [*wanted, *([key for key in wanted if key in COMPARED] if fresh else [])]
        with Progress(transient=True, disable=not progress) as bar:
            task = bar.add_task("audit", total=len(steps))

            def tick(key: str) -> None:
                bar.update(task, advance=1, description=key)

            readings, skipped = _read_all(inputs, wanted, tick)
            usual = _read_all(fresh, [key for key in wanted if key in COMPARED], tick)[0] if fresh else {}
    found = find(readings, usual, thresholds)
    return Audit(named, readings, usual, skipped, found, inputs.graph, inputs.graph.not_plain)


def _wanted(metrics: Sequence[str] | None, probe: bool) -> list[str]:
    keys = [metric(key).METRIC.key for key in metrics] if metrics is not None else list(metric_keys())
    return [key for key in keys if probe or key != "trainability"]


def _read_all(
    inputs: MetricInputs, keys: Sequence[str], tick: Callable[[str], None]
) -> tuple[dict[str, Reading], dict[str, str]]:
    readings: dict[str, Reading] = {}
    skipped: dict[str, str] = {}
    for key in keys:
        tick(key)
        module = metric(key)
        missing = [need for need in module.METRIC.needs if not inputs.has(need)]
        if missing:
            skipped[key] = f"needs {NEEDS[missing[0]]}"
            continue
        try:
            readings[key] = module.measure(inputs)
        except RekindleError as error:
            skipped[key] = f"{error.got}; {error.fix}"
    return readings, skipped


NEEDS = {
    "units": "a traced model: pass the live model and an example",
    "reference": "reference=, the initial weights",
    "features": "data=, batches to run the model on",
    "loss": "data= with targets, (inputs, targets) or dicts with labels, and loss= where it does not follow from them",
    "weights": "weights",
}


def _inputs_of(
    model: Any,
    data: Iterable[Any] | None,
    example: Any,
    graph: UnitGraph | None,
    loss: Loss | None,
    reference: Reference | None,
    seed: int,
) -> tuple[MetricInputs, str]:
    start = gather(reference, seed).reference
    if not isinstance(model, nn.Module):
        tensors, outlines, others = _stored(model)
        name = str(Path(model).name) if isinstance(model, (str, os.PathLike)) else "a state dict"
        _refuse_meta(tensors if outlines is tensors else {})
        return MetricInputs(tensors, _graph_of_stored(outlines, others, graph), start, seed=seed), name
    model = bare(model)
    _refuse_meta(tensors_of(model))
    batches = _kept(data)
    if example is None and batches:
        example = inputs_of(batches[0])
    graph = graph_of(model, example, graph)
    features = gather_features(model, graph, [*batches], seed=seed) if batches and graph.traced else None
    usable = loss or (default_loss if batches and _labeled(batches[0]) else None)
    inputs = MetricInputs(tensors_of(model), graph, start, features, model, batches, usable, seed)
    return inputs, type(model).__name__


def _graph_of_stored(outlines: Mapping[str, Tensor], others: Mapping[str, str], graph: UnitGraph | None) -> UnitGraph:
    """Return the graph of stored tensors: what was given, if it is theirs, or what their names and shapes tell."""
    shapes = shapes_of(outlines)
    if graph is None:
        return scan_state_dict(shapes).leaving_out(not_plain(outlines, outlines) | dict(others))
    refuse_other_graph({name: shapes[name] for name in graph.parameters if name in shapes}, graph)
    return graph_of(outlines, None, graph).leaving_out(others)


def _stored(model: Any) -> tuple[Mapping[str, Tensor], dict[str, Tensor], dict[str, str]]:
    if isinstance(model, Mapping):
        refuse_sharded(model)
        tensors, others = parted(model)
        return tensors, tensors, others
    if isinstance(model, (str, os.PathLike)):
        return open_checkpoint(model)
    raise RekindleError(
        expected="a model, a state dict, or the path of a checkpoint",
        got=type(model).__name__,
        fix="pass the nn.Module itself, model.state_dict(), or a .safetensors file",
    )


def _kept(data: Iterable[Any] | None) -> tuple[Any, ...]:
    if data is None:
        return ()
    if isinstance(data, (Tensor, Mapping)) or (isinstance(data, tuple) and any(isinstance(x, Tensor) for x in data)):
        raise RekindleError(
            expected="data: batches, as a DataLoader or a list is",
            got="one batch",
            fix="put it into a list: data=[(inputs, targets)]",
        )
    return tuple(in_plain_dicts(batch) for batch, _ in zip(data, range(BATCHES), strict=False))


def _labeled(batch: Any) -> bool:
    return isinstance(batch, Mapping) or isinstance(split(batch)[1], Tensor)


def _refuse_meta(tensors: Mapping[str, Tensor]) -> None:
    if empty := valueless(tensors):
        raise RekindleError(
            expected="a model with values",
            got=f"{empty[0]} on the meta device, which has none",
            fix="load the weights first; rk.trace shows its structure as it is",
        )


def _refuse_not_finite(tensors: Mapping[str, Tensor], left_out: Mapping[str, str]) -> None:
    for name in (name for name in tensors if name not in left_out):
        tensor = tensors[name]
        if tensor.is_floating_point() and not finite(tensor):
            bad = int((~torch.isfinite(tensor)).sum())
            raise RekindleError(
                expected="finite values in every tensor",
                got=f"{bad} of {tensor.numel()} NaN or infinite in {name}",
                fix="this network has diverged: go back to a checkpoint from before, with a lower learning rate",
            )


def _fresh_inputs(inputs: MetricInputs) -> MetricInputs | None:
    """Return a fresh network of the same class: the reference, else by its own initializers; None without either.

    Tensors that hold no plain floats are in it as they are.
    """
    plain = [name for name in inputs.graph.parameters if name not in inputs.graph.not_plain]
    known = {name: _initial(inputs, name) for name in plain}
    if any(value is None for value in known.values()) or not known:
        return None
    tensors = {name: tensor.to(inputs.tensors[name]) for name, tensor in known.items() if tensor is not None}
    for name in inputs.graph.statistics():
        value = inputs.graph.fresh(name, tuple(inputs.tensors[name].shape), inputs.seed, "audit")
        if value is not None:
            tensors[name] = value.to(inputs.tensors[name])
    whole = {**{n: t for n, t in inputs.tensors.items() if n not in tensors}, **tensors}
    features = None
    if inputs.features is not None and inputs.model is not None:
        batches = [*inputs.batches]
        features = gather_features(inputs.model, inputs.graph, batches, seed=inputs.seed, replaced=tensors)
    return MetricInputs(whole, inputs.graph, inputs.reference, features, seed=inputs.seed)


def _initial(inputs: MetricInputs, name: str) -> Tensor | None:
    if inputs.reference is not None and name in inputs.reference:
        return inputs.reference[name]
    return inputs.graph.fresh(name, tuple(inputs.graph.parameters[name]), inputs.seed, "audit")


def _reading(reading: Reading) -> dict[str, Any]:
    return {"summary": reading.summary, "parts": dict(reading.parts), "details": dict(reading.details)}


def _plain(value: Any) -> Any:
    """Return data that JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Tensor):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return value if isinstance(value, (int, str, bool, type(None))) else str(value)
