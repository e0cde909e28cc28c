"""One run from its spec to its rows: killed at any moment, it goes on bit-equal from its last checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rekindle.errors import SettingsError
from rekindle.graph import UnitGraph
from rekindle.lab.data.augment import augmentation
from rekindle.lab.data.catalog import load
from rekindle.lab.data.subsets import fraction, hold_out, noisy_labels
from rekindle.lab.models.catalog import build
from rekindle.lab.protocols.catalog import protocol
from rekindle.lab.runs import checkpoint
from rekindle.lab.runs.learner import Learner
from rekindle.lab.runs.measure import measurer
from rekindle.lab.runs.progress_bar import Bar
from rekindle.lab.runs.shared_prefix import plain
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.validate import check, methods_of
from rekindle.methods.spec import FRESH
from rekindle.seeds import seed_of
from rekindle.training import replicas
from rekindle.training.examples import Examples
from rekindle.training.optimizers import optimizer
from rekindle.training.progress import TrainConfig, length_of
from rekindle.training.schedules import schedule
from rekindle.training.stage import Stage
from rekindle.training.tokens import Tokens

Row = dict[str, Any]
COLUMNS = ("protocol", "data", "model", "methods", "seed")
# Fields that speak of images, labels or epochs. `evaluate_each` would pass by the steps whose weights are kept.
FOR_EXAMPLES = (
    *("epochs", "warmup", "schedule", "patience", "validation", "augment", "label_noise", "sample_fraction"),
    "evaluate_each",
)
SAVING = 0.05  # largest part of the time that is spent on checkpoints


def train_run(
    run: Run,
    folder: Path | None,
    *,
    progress: Callable[[Row], None] | None = None,
    every: float = 10.0,
    bar: bool = False,
    shared_prefix: Path | None = None,
) -> list[Row]:
    """Train a run, or go on with it, and return its rows.

    Args:
        run: What to train.
        folder: Of this run alone; the checkpoint is written there. Called again, it goes on from there, and a finished
            run only returns its rows. None keeps nothing.
        progress: Called with each new row; again with the rows after the last checkpoint if the run was killed.
        every: Seconds from one checkpoint to the next, or more, so that writing takes at most a twentieth of the time;
            0 for one after each step. There is one after each stage.
        bar: Show what remains, if the output is a terminal.
        shared_prefix: Folder that runs share which are equal up to the first boundary, see
            `rekindle.lab.runs.shared_prefix`: the state there is left in it, or taken from it.

    Returns:
        A row for each evaluation, with at least key, protocol, data, model, methods, seed, stage, epoch, accuracy, loss
        and seconds. `event` is "boundary" right after one-shot methods, "epoch", or "end" for the last of a stage.

    Raises:
        RekindleError: The run makes no sense, its data are missing, its loss is not finite, or a checkpoint cannot be
            written; a run that is started again goes on from its last checkpoint.

    Example:
        >>> run = Run(protocol="warm_start:before=2,after=1,fraction=0.5", batch_size=64)
        >>> [(row["stage"], row["event"], row["epoch"]) for row in train_run(run, None)]
        [(0, 'epoch', 1), (0, 'end', 2), (1, 'boundary', 0), (1, 'end', 1)]
    """
    check(run.to_dict())
    head = head_of(run)
    saved = None if folder is None else _saved(run, folder)
    if saved is not None and saved["finished"]:
        return [{**head, **row} for row in saved["learner"]["rows"]]
    with thread_count(run.threads):
        stages, classes = stages_of(run)
        learner = learner_of(run, stages, classes)
        with Bar(
            bar, [stage.name for stage in stages], [length_of(s, train_config_of(run)).last for s in stages]
        ) as shown:
            alike = plain(run)
            shared = (
                None if shared_prefix is None or alike is None else _SharedPrefix(alike, shared_prefix, _common(stages))
            )
            keep = _Keep(run, folder, every, learner, shown, shared)
            if saved is not None:
                learner.load_state_dict(saved["learner"])
            elif shared is not None and (before := shared.read()) is not None:
                learner.load_state_dict(before)
                for row in learner.rows:
                    keep.tell({**head, **row}, progress)
            rows = learner.run(keep, lambda row: keep.tell({**head, **row}, progress))
    if folder is not None and replicas.rank() == 0:  # the first may be writing when the others are done
        checkpoint.tidy(folder)
    return [{**head, **row} for row in rows]


def _common(stages: Sequence[Stage]) -> int:
    """Return how many stages there are before the first boundary; 0 if there is none."""
    return next((number for number, stage in enumerate(stages) if stage.boundary), 0)


@dataclass(frozen=True)
class _SharedPrefix:
    """The state that runs share after their first stages.

    Args:
        run: Without methods: what they have in common.
        folder: Where it is.
        stages: How many stages they share.
    """

    run: Run
    folder: Path
    stages: int

    def read(self) -> dict[str, Any] | None:
        saved = _saved(self.run, self.folder)
        return None if saved is None else saved["learner"]

    def write(self, learner: Learner) -> None:
        if not (self.folder / checkpoint.NAME).exists():
            checkpoint.write(self.folder, _content(self.run, learner))


def _content(run: Run, learner: Learner) -> dict[str, Any]:
    content = {"key": run.key, "run": run.to_dict(), "finished": learner.finished}
    return {**content, "learner": learner.state_dict()}


@dataclass
class _Keep:
    """Saves when it is due, and moves the bar."""

    run: Run
    folder: Path | None
    every: float
    learner: Learner
    bar: Bar
    shared: _SharedPrefix | None = None
    last: float = 0.0

    def __post_init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, must: bool) -> None:
        self.bar.move(*self.learner.where)
        if replicas.rank() > 0:  # one process writes for all
            return
        if self.folder is not None and (must or time.monotonic() - self.last >= self.every):
            begun = time.monotonic()
            checkpoint.write(self.folder, _content(self.run, self.learner))
            self.last = time.monotonic()
            if self.every:  # a large model is not saved all the time
                self.every = max(self.every, (self.last - begun) / SAVING)
        if must and self.shared is not None and 0 < self.learner.where[0] == self.shared.stages:
            self.shared.write(self.learner)

    def tell(self, row: Row, progress: Callable[[Row], None] | None) -> None:
        self.bar.tell(row)
        if progress is not None:
            progress(row)


def _saved(run: Run, folder: Path) -> dict[str, Any] | None:
    saved = checkpoint.read(folder)
    if saved is not None and saved["key"] != run.key:
        differing = sorted(name for name, value in run.to_dict().items() if saved["run"].get(name) != value)
        raise checkpoint.CheckpointError(
            expected=f"the checkpoint of run {run.key} in {folder}",
            got=f"that of run {saved['key']}, which differs in {', '.join(differing)}",
            fix="give each run a folder of its own, named by its key",
        )
    return saved


def stages_of(run: Run) -> tuple[list[Stage], int]:
    """Return the stages of a run, those of its protocol with what the run says about all of them; and the classes."""
    data = load(run.data, run.seed)
    if not isinstance(data.train, Tokens):
        train = fraction(data.train, run.sample_fraction, run.seed)
        noise = seed_of(run.seed, "run", "label noise")
        data = data.with_train(noisy_labels(train, run.label_noise, data.classes, noise))
    stages = [_as_asked(run, stage) for stage in protocol(run.protocol).stages(data, run.seed)]
    parts = [part for stage in stages for part in (stage.train, stage.test, stage.validation)]
    labels = [int(part.labels.max()) + 1 for part in parts if isinstance(part, Examples)]
    return stages, max([data.classes, *labels])  # a second data set may have more


def _as_asked(run: Run, stage: Stage) -> Stage:
    if isinstance(stage.train, Tokens):
        _check_text(run)
        return stage
    if run.epochs is not None:
        stage = replace(stage, epochs=run.epochs, steps=None, evaluate_each=None)
    if stage.validation is None and run.validation:
        learned, held = hold_out(stage.train, run.validation, run.seed)
        stage = replace(stage, train=learned, validation=held)
    if stage.patience is None and stage.validation is not None:
        stage = replace(stage, patience=run.patience)
    return stage


def _check_text(run: Run) -> None:
    """Refuse what a run says about images or labels: with text it would be without effect."""
    given, usual = run.to_dict(), Run().to_dict()
    lost = [name for name in FOR_EXAMPLES if given[name] != usual[name]]
    if lost:
        raise SettingsError(
            expected=f"a run on text without {', '.join(lost)}",
            got=", ".join(f"{name}={given[name]!r}" for name in lost),
            fix="leave them out; steps, warmup, schedule and evaluate are settings of the protocol",
        )


@dataclass(frozen=True)
class _Shape:
    shape: tuple[int, ...]
    classes: int
    is_text: bool


def learner_of(run: Run, stages: list[Stage], classes: int, graph: UnitGraph | None = None) -> Learner:
    """Return the learner of a run at its beginning; `graph` spares tracing the network again."""
    fitting = _Shape(stages[0].train.shape, classes, isinstance(stages[0].train, Tokens))
    return Learner(
        lambda: build(run.model, fitting),
        lambda model, example: optimizer(run.optimizer, model, example),
        stages,
        train_config_of(run),
        methods=methods_of(run.methods),
        fresh=run.methods == FRESH,
        seed=run.seed,
        device=run.device,
        measure=measurer(run.metrics, run.seed) if run.metrics else None,
        measure_epochs=run.metrics_each == "epoch",
        graph=graph,
        compile=run.compile,
    )


def head_of(run: Run) -> Row:
    """Return the columns that all rows of a run begin with."""
    return {"key": run.key, **{name: getattr(run, name) for name in COLUMNS}}


def train_config_of(run: Run) -> TrainConfig:
    """Return how the run trains every stage."""
    return TrainConfig(
        batch_size=run.batch_size,
        clip=run.clip,
        warmup=run.warmup,
        schedule=schedule(run.schedule),
        augment=augmentation(run.augment),
        precision=run.precision,
        accumulate=run.accumulate,
        evaluate_each=run.evaluate_each,
    )


@contextlib.contextmanager
def thread_count(count: int) -> Iterator[None]:
    """Let torch use so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
