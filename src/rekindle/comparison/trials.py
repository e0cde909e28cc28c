"""Copies of one checkpoint: each is treated in its own way, all are trained on the same batches in the same order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.progress import Progress
from torch import nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from rekindle.comparison.batches import TrainingBatches, digest, own_generators
from rekindle.comparison.scores import Scorer
from rekindle.comparison.trial import Row, Trial
from rekindle.edits.optimizer_state import refuse_strangers
from rekindle.errors import RekindleError
from rekindle.graph import UnitGraph
from rekindle.graph.modules import tensors_of
from rekindle.keeper import Keeper
from rekindle.methods.spec import FRESH, UNTREATED
from rekindle.observe import STALE, Loss, Reference
from rekindle.seeds import seed_of
from rekindle.training import optimizers
from rekindle.training.copying import copied
from rekindle.training.loop import train_on

Make = Callable[[nn.Module], Optimizer]
RESET = "full_reset"


class CompareError(RekindleError):
    """Something cannot be compared as asked."""


@dataclass
class TrialSetup:
    """What all ways on have in common, and what came of them.

    Attributes:
        before: Scores of the checkpoint itself.
        rows: Of all ways and seeds that ended.
        trials: What was trained, the failed ones too.
        failed: Why a way failed, by name; its other seeds are not run.
        notes: What the user should know.
    """

    model: nn.Module
    batches: TrainingBatches
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
    trials: list[Trial] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)  # a set that keeps its order


def run_all(setup: TrialSetup, names: Mapping[str, tuple[Any, ...]], seeds: Sequence[int], bar: Progress) -> None:
    """Run every way with every seed; going on untreated must come first.

    Args:
        setup: What they have in common; filled.
        names: Methods by the name of the way.
        seeds: The seeds.
        bar: Told of each run.

    Raises:
        Exception: Whatever going on untreated raises: data, loss or metric do not fit then, for all ways.
    """
    task = bar.add_task("compare", total=len(names) * len(seeds))
    common = _common(setup)
    for seed in seeds:
        for name, chosen in names.items():
            bar.update(task, advance=1, description=f"seed {seed}: {name}")
            if name in setup.failed:
                continue
            trial = replace(common, methods=name, seed=seed)
            setup.trials.append(trial)
            try:
                rows = _one(setup, name, chosen, seed)
            except Exception as error:
                if name == UNTREATED:  # the data, the loss or the metric do not fit: so for all
                    raise
                setup.failed[name] = f"seed {seed}: {_reason(error)}"
                continue
            columns = trial.columns()
            setup.rows += [{**columns, "stage": 0, "stage_name": "new data", **row} for row in rows]


def _one(setup: TrialSetup, name: str, chosen: tuple[Any, ...], seed: int) -> list[Row]:
    """Copy the model, treat and train the copy, and return a row for after the treatment and one for the end."""
    with own_generators(seed, "treatment"):
        model, optimizer = _copy_of(setup)
        begun = time.perf_counter()
        if name == FRESH:
            _reset(setup, model, optimizer, seed)
        context = {"example": setup.example, "graph": setup.graph, "reference": setup.reference}
        keeper = Keeper(model, optimizer, chosen, seed=seed, **context)
    try:
        with own_generators(seed, "treatment"):
            records = keeper.boundary(_Again(setup.batches), loss=setup.loss)
        treated = time.perf_counter() - begun
        after = setup.scorer(model)
        begun = time.perf_counter()
        with own_generators(seed, "training"):  # the same for all, whatever a treatment has drawn
            mean = train_on(model, optimizer, setup.batches.batches(seed, setup.steps), setup.loss, keeper=keeper)
        taken = treated + time.perf_counter() - begun
    finally:
        keeper.close()
    _note(setup, name, [notice for record in records for notice in record.notices])
    before = {f"{key}_before": value for key, value in setup.before.items()}
    first = {"event": "boundary", "epoch": 0, "step": 0, **after, **before, "boundary_seconds": treated}
    last = {"event": "end", "epoch": -(-setup.steps // setup.batches.each), "step": setup.steps, "train_loss": mean}
    return [first | {"seconds": treated}, last | setup.scorer(model) | {"seconds": taken}]


def _note(setup: TrialSetup, name: str, notices: Sequence[str]) -> None:
    """Keep what a treatment had to say, of its first seed; statistics that are stale mend in the training."""
    if any(row["methods"] == name for row in setup.rows):
        return
    told = ("BatchNorm statistics were stale right after the treatment" if n == STALE else n for n in notices)
    setup.notes.update(dict.fromkeys(f"{name}: {each}" for each in told))


def _reset(setup: TrialSetup, model: nn.Module, optimizer: Optimizer, seed: int) -> None:
    """Start afresh: weights by the user's factory or by their own initializers, an optimizer without a past."""
    again = Keeper(
        model, optimizer, RESET, graph=setup.graph, reference=setup.fresh, seed=seed_of(seed, "fresh", RESET)
    )
    (record,) = again.boundary()
    kept = [skip.tensor for skip in record.skips]
    tensors = tensors_of(model)
    old = sum(tensors[name].numel() for name in kept if name in tensors)
    if 2 * old > sum(parameter.numel() for parameter in model.parameters()):
        raise CompareError(
            expected="initializers of most parameters, to start afresh",
            got=f"none for {old} numbers, such as {kept[0]}",
            fix="pass fresh=, a function that builds the model",
        )
    if kept:
        setup.notes[f"fresh: {len(kept)} tensors keep their values, such as {kept[0]}; pass fresh= to draw them"] = None
    optimizer.state.clear()


@dataclass(frozen=True)
class _Again:
    """The training batches in their given order, as often as a method asks."""

    batches: TrainingBatches

    def __iter__(self) -> Iterator[Any]:
        return self.batches.plain()


def _copy_of(setup: TrialSetup) -> tuple[nn.Module, Optimizer]:
    """Return a copy of the model and an optimizer that trains it; copied together, they stay together."""
    given = setup.optimizer
    if isinstance(given, Optimizer):
        model, made = copied((setup.model, given), CompareError)
    else:
        model = copied(setup.model, CompareError)
        made = optimizers.optimizer(given, model, setup.example) if isinstance(given, str) else given(model)
    refuse_strangers((made,), model, CompareError)
    return model, made


def _common(setup: TrialSetup) -> Trial:
    """Return what all trials of the comparison share; weights and data are told by digests."""
    optimizer = setup.optimizer if isinstance(setup.optimizer, str) else "own"
    name = type(setup.model).__name__
    return Trial(
        methods=UNTREATED,
        seed=0,
        steps=setup.steps,
        data=f"own:{digest(_leaves(setup))}",
        model=f"{name}:{digest(tensors_of(setup.model).values())}",
        optimizer=optimizer,
        batch_size=setup.batches.size,
    )


def _leaves(setup: TrialSetup) -> list[Any]:
    return [setup.batches.digest, *pytree.tree_leaves(setup.scorer.batches)]


def _reason(error: Exception) -> str:
    if isinstance(error, RekindleError):
        return f"expected {error.expected}; got {error.got}; {error.fix}"
    return f"{type(error).__name__}: {error}"
