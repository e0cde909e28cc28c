"""Trainability: does the network still learn as fast as a fresh one of its class? Tried out, on copies.

The only metric that trains. The user's model is copied and never trained itself; the global generators are put back.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.errors import PlanError
from rekindle.graph.modules import tensors_of
from rekindle.graph.names import canonical
from rekindle.graph.plain import why_not_in_place
from rekindle.graph.unwrap import bare
from rekindle.metrics.reading import MetricCard, MetricInputs, Reading
from rekindle.observe.batches import labels_of, with_labels
from rekindle.observe.visit import batches_of, device_of
from rekindle.seeds import generator, global_seed, seed_of
from rekindle.training.copying import copied

# Long enough that a fresh network gets somewhere: after 40 steps one whose units are all dead is hardly behind.
STEPS, REPEATS, LEARNING_RATE = 100, 3, 1e-3
# 97.5% points of Student's t for 1, 2, ... degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]
STUDENT += [2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093]

METRIC = MetricCard(
    key="trainability",
    title="Trainability probe",
    source="Ash and Adams 2020 (the warm-start gap); Lyle et al. 2023 (random labels)",
    what="Copies of the network and fresh ones of its class take the same 100 steps of Adam (1e-3) on the same "
    "batches, which should be the data to come (labels='random' draws them anew). The reading is (A - A') / A', A the "
    "mean training loss over the steps and A' that of the fresh one: 0.1 is 10% more loss on the way. Mean of 3 "
    "repeats with other labels, orders and fresh draws; a 95% interval by Student's t and the final losses are in the "
    "details.",
    unit="relative loss",
    direction="lower",
    range=(-math.inf, math.inf),
    needs=("loss",),
    known="The question itself, asked directly, so it needs no proxy; for this optimizer and this short horizon. On "
    "data that it knows an aged network is ahead (a negative reading): give it new data. With random "
    "labels one that is sure of itself starts far behind, whatever its plasticity: look at the final losses then. An "
    "interval that holds 0 is no evidence of a loss. Costs 600 training steps.",
)


@dataclass(frozen=True)
class ProbeResult:
    """How an aged network trained, against fresh ones.

    Attributes:
        mean: Mean over repeats of (area of the aged - area of the fresh) / area of the fresh.
        low: Lower end of the 95% interval; minus infinity with a single repeat.
        high: Upper end.
        repeats: The value of each repeat.
        final: The same for the mean loss of the last tenth of the steps, as a plain difference.
    """

    mean: float
    low: float
    high: float
    repeats: tuple[float, ...]
    final: float


def trainability(aged: Sequence[Sequence[float]], fresh: Sequence[Sequence[float]]) -> ProbeResult:
    """Compare training-loss curves, pair by pair; a curve that is not finite counts as infinitely bad.

    Args:
        aged: One curve a repeat.
        fresh: One curve a repeat, trained on the same as the aged one's.

    Raises:
        PlanError: A fresh network did not train: its loss is not finite, or not above zero.

    Example:
        >>> found = trainability([[2.0, 1.0], [2.0, 2.0]], [[1.0, 1.0], [2.0, 2.0]])
        >>> found.repeats, found.mean, found.final
        ((0.5, 0.0), 0.25, 0.0)
    """
    areas = [statistics.fmean(curve) for curve in fresh]
    if not all(math.isfinite(area) and area > 0 for area in areas):
        raise PlanError(
            expected="a mean training loss of the fresh network that is finite and above zero",
            got=str(areas),
            fix="probe with a smaller learning rate, or with a loss that is never negative",
        )
    values = tuple((_finite_mean(curve) - area) / area for curve, area in zip(aged, areas, strict=True))
    tails = [_finite_mean(_tail(a)) - _finite_mean(_tail(f)) for a, f in zip(aged, fresh, strict=True)]
    mean = statistics.fmean(values)
    half = _half_width(values)
    return ProbeResult(mean, mean - half, mean + half, values, statistics.fmean(tails))


def _finite_mean(curve: Sequence[float]) -> float:
    mean = statistics.fmean(curve)
    return mean if math.isfinite(mean) else math.inf


def _tail(curve: Sequence[float]) -> Sequence[float]:
    return curve[-max(1, len(curve) // 10) :]


def _half_width(values: Sequence[float]) -> float:
    count = len(values)
    if count < 2 or not all(map(math.isfinite, values)):
        return math.inf
    student = STUDENT[count - 2] if count - 2 < len(STUDENT) else 2.093
    return student * statistics.stdev(values) / math.sqrt(count)


def probe(
    inputs: MetricInputs,
    *,
    steps: int = STEPS,
    repeats: int = REPEATS,
    learning_rate: float = LEARNING_RATE,
    labels: str = "given",
    factory: Callable[[], nn.Module] | None = None,
) -> Reading:
    """Train copies of the model and fresh ones, and compare.

    Args:
        inputs: With a live model, batches and a loss.
        steps: Training steps.
        repeats: How often, each time with other labels, another order of the batches and another fresh network.
        learning_rate: Of Adam.
        labels: "given" for the batches as they are, which should be the new data; or "random" ones, which any network
            that is sure of itself unlearns slowly at first.
        factory: Builds a fresh model; left out, tensors are drawn by their layers' initializers.

    Raises:
        PlanError: The model cannot be copied or drawn afresh, or the fresh network does not train.
    """
    if min(steps, repeats) < 1 or learning_rate <= 0 or labels not in ("random", "given"):
        raise PlanError(
            expected='steps and repeats of at least 1, learning_rate > 0, labels "random" or "given"',
            got=f"steps={steps}, repeats={repeats}, learning_rate={learning_rate}, labels={labels!r}",
            fix="correct the value that is out of its range",
        )
    assert inputs.model is not None
    model = bare(inputs.model)
    inputs = replace(inputs, model=model)
    kept = list(batches_of(list(inputs.batches), device_of(model.parameters()), METRIC.key))
    shuffled = labels == "random" and all(labels_of(batch) is not None for batch in kept)
    curves: dict[str, list[list[float]]] = {"aged": [], "fresh": []}
    unknown: list[str] = []
    for repeat in range(repeats):
        seed = seed_of(inputs.seed, "probe", str(repeat))
        new, unknown = _fresh(inputs, factory, seed)
        batches = with_random_labels(kept, seed) if shuffled else kept
        for name, trained in (("aged", copied(model, PlanError)), ("fresh", new)):
            curves[name].append(_train(trained, inputs.loss, batches, steps, learning_rate, seed))
    return _reading(curves, {"labels": "random" if shuffled else "given", "steps": steps, "not_fresh": unknown})


def measure(inputs: MetricInputs) -> Reading:
    """Return how much more loss the network has on the way than a fresh one; interval and curves in the details."""
    return probe(inputs)


def _reading(curves: Mapping[str, list[list[float]]], about: Mapping[str, Any]) -> Reading:
    found = trainability(curves["aged"], curves["fresh"])
    means = {name: [statistics.fmean(step) for step in zip(*each, strict=True)] for name, each in curves.items()}
    details = {
        "low": found.low,
        "high": found.high,
        "repeats": list(found.repeats),
        "final_difference": found.final,
        "final": {name: statistics.fmean(_tail(curve)) for name, curve in means.items()},
        "curves": means,
        **about,
    }
    return Reading(METRIC.key, found.mean, details=details)


def with_random_labels(batches: Sequence[Any], seed: int) -> list[Any]:
    """Return batches whose integer labels are drawn anew from those that occur; negative ones (to ignore) stay."""
    every = [labels_of(batch) for batch in batches]
    seen = torch.cat([labels.reshape(-1) for labels in every if labels is not None]).unique().cpu()
    seen = seen[seen >= 0]
    random = generator(seed, "labels", METRIC.key)

    def drawn(old: Tensor) -> Tensor:
        new = seen[torch.randint(len(seen), old.shape, generator=random)].to(old)
        return torch.where(old >= 0, new, old)

    return [with_labels(batch, drawn(old)) for batch, old in zip(batches, every, strict=True) if old is not None]


def _fresh(inputs: MetricInputs, factory: Callable[[], nn.Module] | None, seed: int) -> tuple[nn.Module, list[str]]:
    """Return a fresh network, and the parameters that nobody knows how to draw: they are as in the aged one."""
    assert inputs.model is not None
    if factory is not None:
        with global_seed(seed, "fresh", METRIC.key):
            built = factory()
        return built.to(device_of(inputs.model.parameters())), []
    graph, model = inputs.graph, copied(inputs.model, PlanError)
    own = tensors_of(model)
    values, unknown = {}, []
    for name in (*graph.parameters, *graph.statistics()):
        drawn = None if name in graph.not_plain else _drawn(inputs, name, own[name], seed)
        if drawn is None:
            unknown.append(name)
        else:
            values[name] = drawn.to(own[name])
    _refuse_half_known([name for name in unknown if name not in graph.not_plain], own, values)
    keys = {canonical(key): key for key in model.state_dict()}
    model.load_state_dict({keys[name]: value for name, value in values.items() if name in keys}, strict=False)
    return model, unknown


def _drawn(inputs: MetricInputs, name: str, own: Tensor, seed: int) -> Tensor | None:
    drawn = inputs.graph.fresh(name, tuple(own.shape), seed, METRIC.key)
    return (inputs.reference or {}).get(name) if drawn is None else drawn


def _refuse_half_known(unknown: Sequence[str], own: Mapping[str, Tensor], known: Mapping[str, Tensor]) -> None:
    missing, there = (sum(own[name].numel() for name in names) for names in (unknown, known))
    if missing > there:
        raise PlanError(
            expected="initializers of most parameters, to draw a fresh network",
            got=f"none for {missing} of {missing + there} numbers, such as {unknown[0]}",
            fix="pass reference=, the initial weights, or call metrics.trainability.probe with factory=, a function "
            "that builds the model",
        )


def _train(
    model: nn.Module, loss: Callable[..., Tensor], batches: Sequence[Any], steps: int, learning_rate: float, seed: int
) -> list[float]:
    """Train a copy; return the loss of each step, before the step. One seed gives one order and one dropout."""
    trained = [p for p in model.parameters() if p.requires_grad and not why_not_in_place(p)]  # what Adam can train
    if not trained:
        raise PlanError(expected="parameters that take gradients", got="all frozen", fix="set requires_grad")
    optimizer = torch.optim.Adam(trained, lr=learning_rate)
    random = generator(seed, "order", METRIC.key)
    order: list[int] = []
    losses = []
    model.train()
    with global_seed(seed, "train", METRIC.key), torch.enable_grad():
        for _ in range(steps):
            order = order or torch.randperm(len(batches), generator=random).tolist()
            optimizer.zero_grad()
            value = loss(model, batches[order.pop()])
            value.backward()
            optimizer.step()
            losses.append(value.detach().reshape(()))
    return torch.stack(losses).tolist()
