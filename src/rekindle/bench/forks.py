"""Forks of one checkpoint: each is treated in its own way, all are trained on the same batches in the same order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.progress import Progress
from torch import nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from rekindle.bench import optimizers
from rekindle.bench.door import FRESH, NONE
from rekindle.bench.feed import Feed, digest, own_generators
from rekindle.bench.scores import Scorer
from rekindle.bench.spec import Run
from rekindle.core.apply import tensors_of
from rekindle.core.copying import copied
from rekindle.core.door import refuse_optimizers
from rekindle.core.errors import RekindleError
from rekindle.core.seeds import seed_of
from rekindle.graph import UnitGraph
from rekindle.keeper import Keeper
from rekindle.observe import STALE, Loss, Reference
from rekindle.protocols.loop import train_on

Row = dict[str, Any]
Make = Callable[[nn.Module], Optimizer]
RESET = "full_reset"


class CompareError(RekindleError):
    """Something cannot be compared as asked."""


@dataclass
class Fork:
    """What all ways on have in common, and what came of them.

    Attributes:
        before: Scores of the checkpoint itself.
        rows: Of all ways and seeds that ended.
        runs: What was run, the failed ones too.
        failed: Why a way failed, by name; its other seeds are not run.
        notes: What the user should know.
    """

    model: nn.Module
    feed: Feed
    steps: int
    loss: Loss
    optimizer: str | Optimizer | Make
    example: Any
    reference: Reference | None
    fresh: Callable[[], nn.Module] | None
    graph: UnitGraph
    scorer: Scorer
    before: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)  # a set that keeps its order


def run_all(site: Fork, names: Mapping[str, tuple[Any, ...]], seeds: Sequence[int], bar: Progress) -> None:
    """Run every way with every seed; going on untreated must come first.

    Args:
        site: What they have in common; filled.
        names: Methods by the name of the way.
        seeds: The seeds.
        bar: Told of each run.

    Raises:
        Exception: Whatever going on untreated raises: data, loss or metric do not fit then, for all ways.
    """
    task = bar.add_task("compare", total=len(names) * len(seeds))
    common = _common(site)
    for seed in seeds:
        for name, chosen in names.items():
            bar.update(task, advance=1, description=f"seed {seed}: {name}")
            if name in site.failed:
                continue
            run = replace(common, methods=name, seed=seed)
            site.runs.append(run)
            try:
                rows = _one(site, name, chosen, seed)
            except Exception as error:
                if name == NONE:  # the data, the loss or the metric do not fit: so for all
                    raise
                site.failed[name] = f"seed {seed}: {_reason(error)}"
                continue
            head = {"key": run.key, "protocol": run.protocol, "data": run.data, "model": run.model, "methods": name}
            site.rows += [{**head, "seed": seed, "stage": 0, "stage_name": "new data", **row} for row in rows]


def _one(site: Fork, name: str, chosen: tuple[Any, ...], seed: int) -> list[Row]:
    """Fork the model, treat and train the fork, and return a row for after the treatment and one for the end."""
    with own_generators(seed, "treatment"):
        model, optimizer = _forked(site)
        begun = time.perf_counter()
        if name == FRESH:
            _reset(site, model, optimizer, seed)
        context = {"example": site.example, "graph": site.graph, "reference": site.reference}
        keeper = Keeper(model, optimizer, chosen, seed=seed, **context)
    try:
        with own_generators(seed, "treatment"):
            records = keeper.boundary(_Again(site.feed), loss=site.loss)
        treated = time.perf_counter() - begun
        after = site.scorer(model)
        begun = time.perf_counter()
        with own_generators(seed, "training"):  # the same for all, whatever a treatment has drawn
            mean = train_on(model, optimizer, site.feed.batches(seed, site.steps), site.loss, keeper=keeper)
        taken = treated + time.perf_counter() - begun
    finally:
        keeper.close()
    _note(site, name, [notice for record in records for notice in record.notices])
    before = {f"{key}_before": value for key, value in site.before.items()}
    first = {"event": "boundary", "epoch": 0, "step": 0, **after, **before, "boundary_seconds": treated}
    last = {"event": "end", "epoch": -(-site.steps // site.feed.each), "step": site.steps, "train_loss": mean}
    return [first | {"seconds": treated}, last | site.scorer(model) | {"seconds": taken}]


def _note(site: Fork, name: str, notices: Sequence[str]) -> None:
    """Keep what a treatment had to say, of its first seed; statistics that are stale mend in the training."""
    if any(row["methods"] == name for row in site.rows):
        return
    told = ("BatchNorm statistics were stale right after the treatment" if n == STALE else n for n in notices)
    site.notes.update(dict.fromkeys(f"{name}: {each}" for each in told))


def _reset(site: Fork, model: nn.Module, optimizer: Optimizer, seed: int) -> None:
    """Start afresh: weights by the user's factory or by their own laws, an optimizer without a past."""
    again = Keeper(model, optimizer, RESET, graph=site.graph, reference=site.fresh, seed=seed_of(seed, "fresh", RESET))
    (record,) = again.boundary()
    kept = [skip.tensor for skip in record.skips]
    tensors = tensors_of(model)
    old = sum(tensors[name].numel() for name in kept if name in tensors)
    if 2 * old > sum(parameter.numel() for parameter in model.parameters()):
        raise CompareError(
            expected="initialisers of most parameters, to start afresh",
            got=f"none for {old} numbers, such as {kept[0]}",
            fix="pass fresh=, a function that builds the model",
        )
    if kept:
        site.notes[f"fresh: {len(kept)} tensors keep their values, such as {kept[0]}; pass fresh= to draw them"] = None
    optimizer.state.clear()


@dataclass(frozen=True)
class _Again:
    """The training batches in their given order, as often as a method asks."""

    feed: Feed

    def __iter__(self) -> Iterator[Any]:
        return self.feed.plain()


def _forked(site: Fork) -> tuple[nn.Module, Optimizer]:
    """Return a copy of the model and an optimizer that trains it; copied together, they stay together."""
    given = site.optimizer
    if isinstance(given, Optimizer):
        model, made = copied((site.model, given), CompareError)
    else:
        model = copied(site.model, CompareError)
        made = optimizers.optimizer(given, model, site.example) if isinstance(given, str) else given(model)
    refuse_optimizers((made,), model)
    return model, made


def _common(site: Fork) -> Run:
    """Return what all runs of the comparison share, as a run; the key of a run tells weights and data too."""
    optimizer = site.optimizer if isinstance(site.optimizer, str) else "own"
    name = type(site.model).__name__
    return Run(
        protocol=f"compare:steps={site.steps}",
        data=f"own:{digest(_leaves(site))}",
        model=f"{name}:{digest(tensors_of(site.model).values())}",
        optimizer=optimizer,
        batch_size=site.feed.size,
    )


def _leaves(site: Fork) -> list[Any]:
    return [site.feed.digest, *pytree.tree_leaves(site.scorer.batches)]


def _reason(error: Exception) -> str:
    if isinstance(error, RekindleError):
        return f"expected {error.expected}; got {error.got}; {error.fix}"
    return f"{type(error).__name__}: {error}"
