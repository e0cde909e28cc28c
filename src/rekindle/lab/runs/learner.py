"""A network on its way through the stages of a protocol, with everything that must be saved to go on bit-equal."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.edits.record import ChangeRecord
from rekindle.edits.restore import restore_
from rekindle.graph import UnitGraph, trace
from rekindle.keeper import Keeper
from rekindle.keeper.checks import changes_structure
from rekindle.methods.kinds import kind_of
from rekindle.seeds import global_seed, seed_of
from rekindle.training import replicas
from rekindle.training.evaluation import Row, batch_loss, evaluation
from rekindle.training.learning_rates import remember_rates
from rekindle.training.loop import train
from rekindle.training.progress import StageProgress, TrainConfig
from rekindle.training.stage import Stage

Build = Callable[[], nn.Module]
MakeOptimizer = Callable[[nn.Module, Tensor], Optimizer]
Measure = Callable[[nn.Module, Stage, Mapping[str, Tensor]], Row]


class Learner:
    """Trains a network stage by stage; its whole state is one dict of tensors and plain data.

    Attributes:
        rows: One for each evaluation so far: stage, stage_name, event ("boundary", "epoch", "end"), epoch, step,
            accuracy, loss, seconds and more.
        model: The network as it is now.
        progress: Where the stage that is under way stands.
        graph: Of the network; None without methods, or where they change its structure.
    """

    def __init__(
        self,
        build: Build,
        make_optimizer: MakeOptimizer,
        stages: Sequence[Stage],
        config: TrainConfig,
        *,
        methods: Sequence[Any] = (),
        fresh: bool = False,
        seed: int = 0,
        device: str = "cpu",
        measure: Measure | None = None,
        measure_epochs: bool = False,
        graph: UnitGraph | None = None,
        compile: bool = False,
    ) -> None:
        """Draw the network and prepare optimizer and methods.

        Args:
            build: Makes a network; its weights come from torch's global generator, seeded here.
            make_optimizer: Makes an optimizer for a model and an example of its input.
            stages: What is trained, in order.
            config: What stages do not say themselves.
            methods: Settings of methods; one-shot ones act at boundaries, per-step ones always.
            fresh: Put a new network in the place of the old one at each boundary.
            seed: Decides every draw.
            device: Where everything is computed.
            measure: Gives more columns for the last row of each stage.
            measure_epochs: Call it for every row.
            graph: Of such a network, if it was traced before; otherwise it is traced once, if methods need it.
            compile: Train the network through `torch.compile`.
        """
        self._build, self._make_optimizer, self._config = build, make_optimizer, config
        self._stages = [_moved(stage, device) for stage in stages]
        self._methods, self._fresh, self._seed, self._device = tuple(methods), fresh, seed, device
        self._measure, self._measure_epochs, self._compile = measure, measure_epochs, compile
        self.graph = graph
        self._example = self._stages[0].train.batch(slice(2))
        self.rows: list[Row] = []
        self._stage, self._entered, self._networks, self._seconds = 0, False, 0, 0.0
        self.progress = StageProgress()
        self._random: Tensor | None = None
        self._kept: dict[str, dict[str, Any]] = {}
        self._lowest = math.inf
        self._start()

    @property
    def finished(self) -> bool:
        """Whether all stages are over."""
        return self._stage >= len(self._stages)

    @property
    def where(self) -> tuple[int, int]:
        """The stage, and its finished epochs."""
        return self._stage, self.progress.epoch

    def _start(self, state: Mapping[str, Any] | None = None) -> None:
        """Draw the network and prepare optimizer and Keeper; load what was saved, if anything was."""
        with global_seed(self._seed, f"network {self._networks}", "initial weights"):
            model = self._build().to(self._device)
        if self._example.ndim == 4:  # images: the loop lays them out in the same way
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._initial = {name: value.detach().clone() for name, value in model.state_dict().items()}
        with global_seed(self._seed, f"network {self._networks}", "optimizer"):
            optimizer = self._make_optimizer(model, self._example)
            remember_rates(optimizer)
            if state is not None:
                restore_(model, state["model"], optimizer)
                optimizer.load_state_dict(state["optimizer"])
            keeper = Keeper(
                model,
                optimizer,
                self._methods,
                example=self._example,
                graph=self._traced(model),
                reference=self._initial,
                seed=self._seed,
            )
        if state is not None:
            keeper.load_state_dict(state["keeper"])
        self.model, self._optimizer, self._keeper = model, optimizer, keeper

    def _traced(self, model: nn.Module) -> UnitGraph | None:
        """Return the graph for all boundaries: tracing takes longer than many a method."""
        if self.graph is None and self._methods and not any(changes_structure(one) for one in self._methods):
            self.graph = trace(model, self._example, strict=False)
        return self.graph

    def run(self, save: Callable[[bool], None] | None = None, told: Callable[[Row], None] | None = None) -> list[Row]:
        """Train what remains and return all rows.

        Args:
            save: Called whenever `state_dict` may be taken: after each step and epoch, and with True at the end of
                each stage, where it should be taken.
            told: Called with each new row.
        """
        with torch.random.fork_rng(devices=[]):
            self._seed_dropout()
            try:
                while not self.finished:
                    self._train_stage(save, told)
            finally:
                self._random = torch.get_rng_state()
        self._keeper.close()
        return self.rows

    def _seed_dropout(self) -> None:
        """Set torch's global generator, from which dropout draws: as it was saved, or by the seed."""
        torch.manual_seed(seed_of(self._seed, "global generator", "dropout"))
        if self._random is not None:
            torch.set_rng_state(self._random)
        self._random = None

    def _train_stage(self, save: Callable[[bool], None] | None, told: Callable[[Row], None] | None) -> None:
        def after_epoch(row: Row | None) -> None:
            if row is not None:
                self.tell(row, told)
            if save is not None and not self.progress.finished:
                save(False)

        self.enter(told)
        stage = self.stage
        with nullcontext() if stage.active else self._keeper.paused():
            train(
                self._wrapped(),
                self._optimizer,
                stage,
                self._config,
                self.progress,
                keeper=self._keeper if stage.active else None,
                seed=self.training_seed,
                after_step=None if save is None else lambda: save(False),
                after_epoch=after_epoch,
            )
        self.leave()
        if save is not None:
            save(True)

    def _wrapped(self) -> nn.Module:
        """Return the network as it is trained: compiled if asked for, one of several replicas if there are more."""
        compiled = torch.compile(self.model) if self._compile else self.model
        return replicas.wrap(cast(nn.Module, compiled))

    @property
    def stage(self) -> Stage:
        """The stage that is under way."""
        return self._stages[self._stage]

    @property
    def training_seed(self) -> int:
        """What decides order and augmentations in the stage that is under way."""
        return seed_of(self._seed, f"stage {self._stage}", "training")

    def enter(self, told: Callable[[Row], None] | None = None) -> None:
        """Do what is due before the stage, unless it was done.

        Before the first one what is to be measured is measured once, for nothing but to see that it can be: a metric
        that the network or the machine does not allow is told now, not after hours of training.
        """
        if not self._entered:
            if self._stage == 0:
                self._measured(self.stage)
            for row in self._enter(self.stage):
                self._add(row, told)
            self._entered = True

    def tell(self, row: Row, told: Callable[[Row], None] | None = None) -> None:
        """Add the row of an epoch that was evaluated."""
        if self.stage.keep:
            self._keep(row)
        self._add(self._told(self.stage, row), told)

    def leave(self) -> None:
        """Go on to the next stage."""
        self._seconds += self.progress.seconds
        self._stage, self._entered, self.progress = self._stage + 1, False, StageProgress()

    def _add(self, row: Row, told: Callable[[Row], None] | None) -> None:
        self.rows.append({"stage": self._stage, "stage_name": self.stage.name, **row})
        if told is not None:
            told(self.rows[-1])

    def _enter(self, stage: Stage) -> Iterator[Row]:
        """Do what is due between two stages; yield a row that tells accuracy before and after."""
        if stage.start_from is not None:
            self._go_back(stage.start_from)
        if not stage.boundary:
            self._clear(stage)
            return
        before = evaluation(self.model, stage, self._config.precision)
        begun = time.perf_counter()
        records = self._boundary(stage)
        taken = time.perf_counter() - begun
        self._clear(stage)
        self._seconds += taken
        after = evaluation(self.model, stage, self._config.precision)
        row: Row = {"event": "boundary", "epoch": 0, "step": 0, **after}
        row |= {f"{name}_before": before[name] for name in ("accuracy", "loss") if name in before}
        row |= {"seconds": self._seconds, "boundary_seconds": taken, **_sums(records)}
        yield row | (self._measured(stage) if self._measure_epochs else {})

    def _boundary(self, stage: Stage) -> list[ChangeRecord]:
        if self._fresh:
            self._keeper.close()
            self._networks += 1
            self._start()
            return []
        one_shot = [_counted(one, stage.rounds) for one in self._methods if kind_of(one) == "one-shot"]
        return self._keeper.boundary(_Batches(stage, self._config.part_size), loss=batch_loss, methods=one_shot)

    def _go_back(self, name: str) -> None:
        """Put weights and the Keeper's state of an earlier moment back; the optimizer begins anew."""
        if name == "initial":
            self._keeper.close()
            self._start()
        else:
            restore_(self.model, self._kept[name]["model"], self._optimizer)
            self._keeper.load_state_dict(self._kept[name]["keeper"])
        self._optimizer.state.clear()

    def _keep(self, row: Row) -> None:
        """Keep the weights that the stage wants to be kept, if this is their moment."""
        due = [name for name, step in self.stage.keep.items() if step in (row["step"], None)]
        for name in due:
            if self.stage.keep[name] is not None or row["loss"] < self._lowest:
                self._kept[name] = copy.deepcopy({"model": self._weights(), "keeper": self._keeper.state_dict()})
        self._lowest = min(self._lowest, row["loss"])

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self.model.state_dict().items()}

    def _clear(self, stage: Stage) -> None:
        if stage.fresh_optimizer:
            self._optimizer.state.clear()

    def _told(self, stage: Stage, row: Row) -> Row:
        factor = row.pop("rate_factor") * (stage.learning_rate or self._optimizer.param_groups[0]["initial_lr"])
        row = {"event": "end" if self.progress.finished else "epoch", **row, "learning_rate": factor}
        row["seconds"] = self._seconds + row.pop("stage_seconds")
        due = self.progress.finished or self._measure_epochs
        return row | (self._measured(stage) if due else {})

    def _measured(self, stage: Stage) -> Row:
        if self._measure is None:
            return {}
        with global_seed(self._seed, f"stage {self._stage}, epoch {self.progress.epoch}", "metrics"):
            return self._measure(self.model, stage, self._initial)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to go on bit-equal: tensors and plain data."""
        return {
            "stage": self._stage,
            "entered": self._entered,
            "networks": self._networks,
            "seconds": self._seconds,
            "place": self.progress.state_dict(),
            "rows": list(self.rows),
            "random": torch.get_rng_state() if self._random is None else self._random,
            "kept": self._kept,
            "lowest": self._lowest,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "keeper": None if self.finished else self._keeper.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken, by a Learner that was made with the same arguments."""
        self._keeper.close()
        self._stage, self._entered = state["stage"], state["entered"]
        self._networks, self._seconds = state["networks"], state["seconds"]
        self.progress, self.rows = StageProgress.from_state(state["place"]), list(state["rows"])
        self._random = state["random"]
        self._kept, self._lowest = dict(state.get("kept", {})), state.get("lowest", math.inf)
        if self.finished:
            restore_(self.model, state["model"])
        else:
            self._start(state)


def _moved(stage: Stage, device: str) -> Stage:
    held = None if stage.validation is None else stage.validation.to(device)
    also = {name: examples.to(device) for name, examples in stage.also.items()}
    return dataclasses.replace(
        stage, train=stage.train.to(device), test=stage.test.to(device), validation=held, also=also
    )


def _counted(method: Any, rounds: Mapping[str, Any]) -> Any:
    """Tell a method which round it is, if it counts rounds."""
    own = {name: value for name, value in rounds.items() if name in {f.name for f in dataclasses.fields(method)}}
    return dataclasses.replace(method, **own) if own else method


class _Batches:
    """Batches of the stage that begins, as often as they are asked for."""

    def __init__(self, stage: Stage, size: int) -> None:
        self._stage, self._size = stage, size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self._stage.train.in_order(self._size)


def _sums(records: Sequence[ChangeRecord]) -> Row:
    """Return what the interventions changed, summed over all edits: tensors, SFE, and DfI before and after; or why not.

    Tensors that were skipped are counted too: what a method leaves alone is part of what it does.
    """
    rows = [row for record in records for row in record.rows]
    matrices = [row for row in rows if row.dfi_before is not None and row.dfi_after is not None]
    if not rows:
        return _without_effect(records)
    sums: Row = {"edited": len({row.tensor for row in rows}), "sfe": sum(record.sfe for record in records)}
    sums["skipped"] = len({skip.tensor for record in records for skip in record.skips} - {row.tensor for row in rows})
    if matrices:
        sums["dfi_before"] = sum(row.dfi_before or 0.0 for row in matrices)
        sums["dfi_after"] = sum(row.dfi_after or 0.0 for row in matrices)
    return sums


def _without_effect(records: Sequence[ChangeRecord]) -> Row:
    """Return why interventions changed nothing, if there were any: such a run is one without a method."""
    if not records or any(record.surgery for record in records):
        return {}
    reasons = dict.fromkeys(skip.reason for record in records for skip in record.skips)
    return {"no_effect": "; ".join(list(reasons)[:3]) or "nothing that it applies to with these settings"}
