"""A Keeper in a training that belongs to a host: what the callbacks of all hosts have in common.

A host's callback tells it the moments and what only the host knows; what happens then is the same everywhere:

    begin           a training begins, on a model with an optimizer, fresh, resumed or again
    before_step     once for each step of the optimizer, before its first backward pass, or right before clipping
    after_step      the optimizer has made its step, or has skipped it
    treat_if_due    between two steps: one-shot methods act if it is time
    end             the training ends; nothing of ours stays in the model
"""

from __future__ import annotations

import logging
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from rekindle.edits.copies import followers
from rekindle.edits.optimizer_state import OptimizerState, as_sequence
from rekindle.edits.recalibrate import recalibrate_
from rekindle.edits.record import ChangeRecord
from rekindle.errors import EditError, NoEffectWarning
from rekindle.graph.unwrap import bare
from rekindle.integrations.readings import Readings, in_a_line
from rekindle.integrations.resuming import refuse_missed, refuse_other, refuse_structure, structure_of
from rekindle.integrations.schedule import schedule_of
from rekindle.keeper import Keeper
from rekindle.keeper.checks import refuse_method
from rekindle.keeper.events import RecyclingRecord
from rekindle.keeper.penalty_gradient import add_penalty_gradient
from rekindle.methods.kinds import kind_of
from rekindle.methods.planning import Given, graph_of, plan_link, warn_of_nothing
from rekindle.methods.rates import Rates
from rekindle.methods.registry import methods as methods_of
from rekindle.observe import STALE, Data, Loss

DROP = 0.5  # a learning rate that falls within one step to this share or less has dropped; see `methods.rates`
logger = logging.getLogger("rekindle")


@dataclass(frozen=True)
class HostData:
    """What a host can show of its data.

    Attributes:
        batches: Batches that can be gone through again, or None for a stream.
        loss: Function (model, batch) -> scalar, the host's own loss.
    """

    batches: Data | None = None
    loss: Loss | None = None


class HostedKeeper:
    """Methods in a host's training.

    Attributes:
        methods: The methods, as settings.
        schedule: When one-shot methods act.
        keeper: The Keeper, while a training goes on.
        records: What was done, the last 1,000 times.
        readings: What was done, as numbers for the host's log.
    """

    def __init__(
        self,
        methods: Any,
        *,
        at: Any = None,
        every: int | None = None,
        rebase: bool = False,
        copies: Any = None,
        frozen: bool = False,
        optimizer_state: OptimizerState | None = None,
        seed: int = 0,
    ) -> None:
        """Check what was asked for; nothing begins yet."""
        self.methods = methods_of(methods)
        for one in self.methods:
            refuse_method(one)
        self.one_shot = tuple(one for one in self.methods if kind_of(one) == "one-shot")
        self.schedule = schedule_of(at, every, self.one_shot)
        self.keeper: Keeper | None = None
        self.records: deque[ChangeRecord | RecyclingRecord] = deque(maxlen=1000)
        self.readings = Readings()
        self._rebase, self._copies, self._frozen, self._seed = rebase, copies, frozen, seed
        self._optimizer_state = optimizer_state
        self._model: Callable[[], nn.Module | None] = lambda: None
        self._parameters: list[nn.Parameter] = []
        self._rates = Rates((), None)
        self._left: dict[str, Any] | None = None  # by the training before, of the same model
        self._penalized = self._stepped = self._warned = False

    def begin(self, model: nn.Module, optimizer: Any, example: Any, saved: Mapping[str, Any] | None = None) -> None:
        """Begin on a model, or go on: where `saved` was taken, or where the training before has ended.

        Another model than before begins anew, with no steps. Methods are planned once, so that what cannot work says so
        now and not hours later.

        Args:
            model: The model, in its wrappers or not.
            optimizer: The host's optimizer, in its wrappers or not.
            example: Input of the model, None where no method needs one.
            saved: What `state_dict` returned, of a training that is resumed.

        Raises:
            RekindleError: A method cannot work here, or the state is of other methods.
        """
        self.end()
        inner = bare(model)
        if saved is None and self.knows(inner):
            saved = self._left
        if saved is not None:
            refuse_other(saved, self.methods, self._options)
            refuse_structure(saved, inner)
            refuse_missed(saved, self.schedule)
        self._refuse_at_the_door(inner, example)
        options = {"copies": self._copies, "frozen": self._frozen, "seed": self._seed}
        options["optimizer_state"] = self._optimizer_state
        keeper = Keeper(inner, optimizer, self.methods, example=example, **options)
        rates = Rates(as_sequence(optimizer), DROP if self._rebase else None)
        try:
            if saved is not None:
                keeper.load_state_dict(saved["keeper"])
                rates.load_state_dict(saved["rates"])
        except BaseException:
            keeper.close()
            raise
        self.keeper, self._rates, self._model, self._left = keeper, rates, weakref.ref(inner), None
        self._parameters = list(inner.parameters())
        self._penalized = self._stepped = False

    def knows(self, model: nn.Module) -> bool:
        """Tell whether a model is the one that the training before was about."""
        return self._model() is bare(model)

    def _refuse_at_the_door(self, model: nn.Module, example: Any) -> None:
        """Plan one-shot methods that need no data, once, and warn of those that would change nothing."""
        graph = graph_of(model, example, None, self.one_shot) if self.one_shot else None
        given = Given(example=example, copies=self._copies, frozen=self._frozen, seed=self._seed)
        for one in self.one_shot:
            if graph is not None and not looks_at_data(one):
                warn_of_nothing(
                    [one], plan_link(one, model, graph, given, followers(self._copies, model)), stacklevel=4
                )

    def expect(self, steps: int) -> None:
        """Warn once if one-shot methods will have nothing to do: in a training of so many steps, or before new data."""
        last = self.steps + steps
        if not self.one_shot or self.boundaries or self._warned or self.schedule.reached(self.steps, last):
            return
        keys = " + ".join(one.key for one in self.one_shot)
        if self.schedule.on_new_data:
            why = "without at= and every= it acts when there is new data, and this is the first"
        else:
            why = f"it ends at step {last}, before what was asked for: {self.schedule}"
        warnings.warn(f"{keys} will not act in this training: {why}", NoEffectWarning, stacklevel=3)
        self._warned = True

    def before_step(self, *, scale: float = 1.0) -> None:
        """Add the gradient of the penalty to `.grad`; a second call before the step does nothing."""
        if self.keeper is not None and not self._penalized:
            add_penalty_gradient(self.keeper, self._parameters, scale=scale)
            self._penalized = True

    def after_step(self, *, skipped: bool = False) -> None:
        """Act after the optimizer's step; for one that was skipped, as GradScaler does, nothing is done or counted."""
        self._penalized, self._stepped = False, not skipped
        if self.keeper is None:
            return
        for record in self.keeper.step(skipped=skipped):
            self._tell(record)
        if self._rebase and not skipped and self._rates.moved()[0]:
            self.keeper.rebase()
            logger.info("step %d: the learning rate has dropped: methods take the weights for their start", self.steps)

    def treat_if_due(self, data: Callable[[], HostData]) -> bool:
        """Let one-shot methods act if it is time after the step that was just made; tell whether they did."""
        due = self._stepped and bool(self.one_shot) and self.schedule.due(self.steps)
        self._stepped = False  # once after each step
        return due and self.treat(data)

    def treat_at_start(self, data: Callable[[], HostData]) -> bool:
        """Let one-shot methods act before the first step, if that was asked for; tell whether they did."""
        due = self.steps == 0 and not self.boundaries and bool(self.one_shot) and self.schedule.due(0)
        return due and self.treat(data)

    def treat_for_new_data(self, data: Callable[[], HostData]) -> bool:
        """Let one-shot methods act because the host has new data, if nothing else was said; tell whether they did."""
        return bool(self.one_shot) and self.schedule.on_new_data and self.treat(data)

    def treat(self, data: Callable[[], HostData]) -> bool:
        """Let one-shot methods act now, and renew running statistics that no longer fit."""
        keeper, model = self.keeper, self._model()
        assert keeper is not None and model is not None
        shown = data() if any(map(looks_at_data, self.one_shot)) else HostData()
        records = keeper.boundary(shown.batches, loss=shown.loss)
        self._parameters = list(model.parameters())  # a method may have changed the structure
        for record in records:
            self._tell(replace(record, _undo=_too_late))
        if any(STALE in record.notices for record in records) and (batches := data().batches) is not None:
            self._tell(replace(recalibrate_(model, batches), _undo=_too_late))
        return True

    def _tell(self, record: ChangeRecord | RecyclingRecord) -> None:
        self.records.append(record)
        self.readings.add(record)
        line = in_a_line(record, self.steps)
        logger.info(line)
        if isinstance(record, ChangeRecord) and not record.changed and not record.surgery:
            warnings.warn(f"{line}; print(callback.records[-1]) says why", NoEffectWarning, stacklevel=4)

    @property
    def steps(self) -> int:
        """Steps that optimizers really made."""
        return self.keeper.steps if self.keeper is not None else 0

    @property
    def boundaries(self) -> int:
        """How often one-shot methods have acted."""
        return self.keeper.boundaries if self.keeper is not None else 0

    @property
    def _options(self) -> dict[str, Any]:
        """What of the options must be the same in a training that is resumed."""
        return {"seed": self._seed, "rebase": self._rebase, "frozen": self._frozen}

    def state_dict(self) -> dict[str, Any]:
        """Return what a host must save with its checkpoint, to be given to `begin` when it is resumed."""
        model = self._model()
        assert self.keeper is not None and model is not None
        return {
            "methods": [str(one) for one in self.methods],
            "options": self._options,
            "at": sorted(self.schedule.at),
            "every": self.schedule.every,
            "structure": structure_of(model),
            "keeper": self.keeper.state_dict(),
            "rates": self._rates.state_dict(),
        }

    def end(self) -> None:
        """End a training: take hooks out of the model, and remember where it was for the next one."""
        if self.keeper is not None:
            try:
                self._left = self.state_dict()
            finally:
                self.keeper.close()
                self.keeper = None


def looks_at_data(method: Any) -> bool:
    """Tell whether a method must be shown data."""
    return "data" in method.card.needs


def _too_late(force: bool) -> None:
    raise EditError(
        expected="a record that kept the old values",
        got="one of a treatment in a training, which went on and keeps no copy of the model",
        fix="load a checkpoint from before the treatment",
    )
