"""The Keeper: per-step methods, recyclers and one-shot methods inside a loop that is the user's own.

    keeper = rk.Keeper(model, optimizer, ["soft_rescale", "redo"], example=x)
    for inputs, targets in data:
        loss = criterion(model(inputs), targets) + keeper.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keeper.step()
    keeper.boundary(new_data)

Moments are four: `penalty` in the loss, `step` after the optimizer's, `boundary` when new data arrives, `close`.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle._renamed import refuse_old_name
from rekindle.edits import write
from rekindle.edits.copies import Copies, followers
from rekindle.edits.optimizer_state import OptimizerState, as_sequence, refuse_strangers
from rekindle.edits.record import ChangeRecord
from rekindle.errors import KeeperError
from rekindle.graph import UnitGraph
from rekindle.graph.modules import tensors_of
from rekindle.graph.surroundings import Surroundings
from rekindle.graph.unwrap import bare, is_distributed
from rekindle.keeper.ages import Ages, ages_of, copied, give_ages
from rekindle.keeper.calls import Calls
from rekindle.keeper.checks import (
    changes_structure,
    refuse_method,
    refuse_state,
    refuse_structural,
    state_of,
)
from rekindle.keeper.engaged import Engaged, engage, initial_after
from rekindle.keeper.events import RecyclingRecord
from rekindle.keeper.watching import paused
from rekindle.methods.kinds import IN_STEPS, kind_of
from rekindle.methods.planning import Given
from rekindle.methods.registry import methods as methods_of
from rekindle.methods.state import MethodState, StartingWeights
from rekindle.methods.treatment import Treatment
from rekindle.observe import Data, Loss, Reference, gather
from rekindle.observe.distributed import processes
from rekindle.seeds import seed_of


class Keeper:
    """Runs methods beside the user's own training loop.

    Where torch.distributed is in use, every process makes the same calls: recyclers average over all of them.

    Attributes:
        steps: Number of calls of `step`, skipped ones left out.
        boundaries: Number of calls of `boundary`.
        recycled: How many units were recycled so far, by group.
        records: What recyclers did, the last 1,000 times.
        skipped: Groups that recyclers cannot treat, and parameters that no method can, with the reason.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        methods: Any = (),
        *,
        example: Any = None,
        graph: UnitGraph | None = None,
        reference: Reference | None = None,
        copies: Copies | None = None,
        frozen: bool = False,
        optimizer_state: OptimizerState | None = None,
        seed: int = 0,
    ) -> None:
        """Prepare methods, and attach to a model if there is one.

        Args:
            model: The model; it may be compiled or wrapped in DistributedDataParallel.
            optimizer: One, or several; what they keep of weights that are edited begins again. None leaves every
                optimizer alone.
            methods: Spec strings or settings, one or several.
            example: Input for the model, from which its structure is traced; recyclers and most others need it.
            graph: The model's graph, if it was traced before.
            reference: Initial weights; for per-step methods those of the model now, if left out.
            copies: Networks that follow others, recopied or treated alike at boundaries; see `rekindle.apply_`.
            frozen: Treat parameters with `requires_grad=False` too.
            optimizer_state: "keep" or "drop" for optimizers whose state is not known; see `rekindle.apply_`.
            seed: Seed of every draw.

        Raises:
            KeeperError: A method, the optimizer or the model cannot be used here, or an example is missing.
        """
        every = methods_of(methods)
        for one in every:
            refuse_method(one)
        self._per_step = tuple(one for one in every if kind_of(one) in IN_STEPS)
        self._at_boundaries = tuple(one for one in every if kind_of(one) == "one-shot")
        self._example, self._graph, self._reference, self._seed = example, graph, reference, seed
        self._copies, self._frozen, self._optimizer_state = copies, frozen, optimizer_state
        self.steps = self.boundaries = 0
        self.recycled: Counter[str] = Counter()
        self.records: deque[RecyclingRecord] = deque(maxlen=1000)
        self._model: nn.Module | None = None
        self._optimizers: list[Optimizer] = []  # one list: methods that look at learning rates hold on to it
        self._engaged: Engaged | None = None
        self._ages: Ages = []  # loaded before there was an optimizer
        self._calls: Calls | None = None
        self._distributed = self._closed = False
        if model is not None:
            self.attach(model, optimizer)

    def attach(self, model: nn.Module, optimizer: Optimizer | Sequence[Optimizer] | None = None) -> None:
        """Begin to work on a model.

        Raises:
            KeeperError: The Keeper works on a model already, was closed, or cannot work on this one.
        """
        if self._model is not None or self._closed:
            raise KeeperError(
                expected="a Keeper that is not attached yet",
                got="one that was closed" if self._closed else "one that works on a model",
                fix="make a new Keeper for another model",
            )
        inner, optimizers = bare(model), as_sequence(optimizer)
        if self._per_step or self._at_boundaries:
            refuse_strangers(optimizers, inner, KeeperError)
        followers(self._copies, inner)
        self._distributed = is_distributed(model) or processes() > 1
        if self._distributed:
            refuse_structural(self._at_boundaries)
        self._optimizers[:] = optimizers
        if self._per_step:
            given = gather(self._reference, self._seed).reference
            self._engaged = self._engage(inner, given if given is not None else StartingWeights(inner), self._graph)
            self._engaged.look_ahead(self.steps + 1)
            self._graph = self._graph_for_boundaries(self._engaged)
        self._model = inner
        self._follow()

    def rebind(self, optimizer: Optimizer | Sequence[Optimizer] | None) -> None:
        """Go on with other optimizers, as after a second `fit`; what methods have learned stays.

        Raises:
            KeeperError: They hold no parameter of the model.
        """
        self._check()
        assert self._model is not None
        optimizers = as_sequence(optimizer)
        refuse_strangers(optimizers, self._model, KeeperError)
        ages = self._ages or ages_of(self._model, self._optimizers)
        self._optimizers[:] = optimizers
        self._give_ages(ages)
        self._follow()

    def _give_ages(self, ages: Ages) -> None:
        assert self._model is not None
        self._ages = [] if self._optimizers else ages
        give_ages(self._model, self._optimizers, ages)

    def _follow(self) -> None:
        """Follow the steps of the optimizers, to notice when the Keeper is not called beside them."""
        if self._calls is not None:
            self._calls.close()
        asks = self._engaged is not None and self._engaged.asks_for_penalty()
        self._calls = Calls(self._optimizers, needs_step=bool(self._per_step), needs_penalty=asks)

    def _engage(self, model: nn.Module, initial: Mapping[str, Tensor], graph: UnitGraph | None) -> Engaged:
        return engage(
            *(self._per_step, model, self._optimizers, initial),
            example=self._example,
            graph=graph,
            frozen=self._frozen,
            optimizer_state=self._optimizer_state,
            seed=self._seed,
        )

    def _graph_for_boundaries(self, engaged: Engaged) -> UnitGraph | None:
        """Return the graph that per-step methods have, unless one-shot methods may need more than their scan."""
        return engaged.graph if engaged.graph.traced or self._example is None else self._graph

    @property
    def skipped(self) -> dict[str, str]:
        """Groups that recyclers cannot treat, and parameters that no method can, with the reason."""
        return self._engaged.skipped if self._engaged is not None else {}

    def penalty(self) -> Tensor | float:
        """Return the term that methods add to the loss; 0.0 if none does."""
        self._check()
        if self._calls is not None:
            self._calls.penalty()
        terms = [term for one in self._working() if (term := one.penalty()) is not None]
        return sum(terms[1:], terms[0]) if terms else 0.0

    def step(self, *, skipped: bool = False) -> list[RecyclingRecord]:
        """Act after the optimizer's step, once for each (not for each of several accumulated batches).

        Args:
            skipped: The optimizer made no step, as when GradScaler found infinite gradients: nothing is done, and what
                was seen of this batch does not count.

        Returns:
            What recyclers did; mostly nothing.
        """
        self._check()
        if self._calls is not None:
            self._calls.keeper_stepped(skipped=skipped)
        if skipped:
            if self._engaged is not None:
                self._engaged.look_ahead(self.steps + 1)
            return []
        self.steps += 1
        if self._engaged is None:
            return []
        told: list[RecyclingRecord] = []
        for one in self._engaged.states:
            for update in one.after_step(self.steps):
                self._engaged.actor.update(update)
        for method, one in zip(self._per_step, self._engaged.states, strict=True):
            told += self._engaged.actor.act(method, one, self.steps, self.records)
        for record in told:
            self.recycled.update({name: len(units) for name, units in record.units.items()})
        self._engaged.look_ahead(self.steps + 1)
        return told

    def boundary(
        self, data: Data | None = None, *, loss: Loss | None = None, methods: Any = None
    ) -> list[ChangeRecord]:
        """Apply the one-shot methods, all or none, as when new data arrives.

        Per-step methods begin anew if the model's structure changes; `rebase` is the user's to call. With
        DistributedDataParallel all processes take over what the first one's data led to.

        Args:
            data: Batches, for methods that look at them.
            loss: Function (model, batch) -> scalar, for methods that look at gradients.
            methods: One-shot methods for this boundary instead of the Keeper's own, as when rounds are counted.

        Returns:
            A record for each method.
        """
        self._check()
        assert self._model is not None
        chosen = self._at_boundaries if methods is None else methods_of(methods)
        if self._distributed:
            refuse_structural(chosen)
        given = Given(
            self._example,
            self._graph,
            data,
            loss,
            self._reference,
            self._copies,
            self._frozen,
            seed_of(self._seed, "boundary", str(self.boundaries + 1)),
        )
        treatment = Treatment(chosen, self._model, self._optimizers, given, optimizer_state=self._optimizer_state)
        around, before = Surroundings(), (self.boundaries, self._graph, self._engaged)
        try:
            with self.paused(unhooked=any(changes_structure(one) for one in chosen)):
                records = treatment.carry_out(self._spread if self._distributed and data is not None else None)
            if any(record.surgery for record in records):
                self._begin_anew()
            self.boundaries += 1
            return records
        except BaseException:  # all or nothing: a boundary that cannot be told of has not been
            around.restore()
            treatment.take_back()
            self._put_back(*before)
            raise

    def _begin_anew(self) -> None:
        """Forget the graph of the model as it was, and let the per-step methods begin on it as it is."""
        assert self._model is not None
        self._graph = None
        if self._engaged is not None:
            self._engaged.close()
            self._engaged = self._engage(self._model, initial_after(self._model, self._engaged.initial), None)
            self._engaged.look_ahead(self.steps + 1)
            self._graph = self._graph_for_boundaries(self._engaged)

    def _put_back(self, boundaries: int, graph: UnitGraph | None, engaged: Engaged | None) -> None:
        if self._engaged is not None and self._engaged is not engaged:
            self._engaged.close()
        self.boundaries, self._graph, self._engaged = boundaries, graph, engaged
        if engaged is not None:
            engaged.open()
            engaged.look_ahead(self.steps + 1)

    def _spread(self) -> None:
        assert self._model is not None
        write.spread(list(tensors_of(self._model).values()), self._optimizers)

    def paused(self, *, unhooked: bool = False) -> contextlib.AbstractContextManager[None]:
        """Keep what is run inside out of what recyclers see of the training.

        What rekindle runs itself (a trace, an audit, a treatment) is kept out anyway.

        Args:
            unhooked: Take the hooks out as well, so that modules which are copied inside have none.
        """
        return paused(self._engaged.watch if self._engaged is not None else None, unhooked=unhooked)

    def rebase(self) -> None:
        """Take the weights as they are for the new start, in methods that have one (`soft_rescale`)."""
        self._check()
        for one in self._working():
            one.rebase()
        if self._engaged is not None and isinstance(self._engaged.initial, StartingWeights):
            self._engaged.initial.rebase()

    def _working(self) -> tuple[MethodState, ...]:
        return self._engaged.states if self._engaged is not None else ()

    def state(self, key: str) -> MethodState:
        """Return the state of a per-step method, for what it offers, as in `state("hare_tortoise").tortoise`."""
        self._check()
        return state_of(key, self._per_step, self._working())

    def __getattr__(self, name: str) -> Any:
        renamed = {"left_alone": "skipped", "running": "state"}
        if name in renamed:
            raise refuse_old_name("Keeper", name, renamed[name])
        raise AttributeError(f"'Keeper' object has no attribute {name!r}")

    def state_dict(self) -> dict[str, Any]:
        """Return what must be saved beside model and optimizer to go on bit-equal: copied tensors and plain data.

        Take it right after `step`: what recyclers saw of a step that is not finished is not in it.
        """
        self._check()
        assert self._model is not None
        return {
            "steps": self.steps,
            "boundaries": self.boundaries,
            "seed": self._seed,
            "recycled": dict(self.recycled),
            "methods": [str(one) for one in self._per_step],
            "running": [copied(one.state_dict()) for one in self._working()],
            "renewed": self._ages or ages_of(self._model, self._optimizers),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken, on a model of the same structure.

        Raises:
            KeeperError: It is no state of a Keeper, or was saved with other methods or another seed.
        """
        self._check()
        refuse_state(state, [str(one) for one in self._per_step], self._seed)
        self.steps, self.boundaries = state["steps"], state["boundaries"]
        self.recycled = Counter(state["recycled"])
        for one, saved in zip(self._working(), state["running"], strict=True):
            one.load_state_dict(copied(saved))
        self._give_ages(list(state.get("renewed", ())))
        if self._engaged is not None:
            self._engaged.look_ahead(self.steps + 1)

    def close(self) -> None:
        """Remove every hook; the model stays as it is."""
        if self._engaged is not None:
            self._engaged.close()
        if self._calls is not None:
            self._calls.close()
        self._engaged, self._calls, self._closed = None, None, True

    def _check(self) -> None:
        if self._closed:
            raise KeeperError(expected="an open Keeper", got="one that was closed", fix="make a new Keeper")
        if self._model is None:
            raise KeeperError(
                expected="a Keeper that works on a model",
                got="one without a model",
                fix="pass the model to rk.Keeper(model, ...), or call keeper.attach(model, optimizer) first",
            )
        if self._engaged is not None and not self._engaged.fingerprint.holds():
            raise KeeperError(
                expected="the model as it was when the Keeper was attached to it",
                got="one whose parameters or modules were replaced, moved to another device or type, or (un)frozen",
                fix="make a new Keeper after such a change, and an optimizer with the new parameters before it; "
                "load weights with load_state_dict(..., assign=False), which keeps the parameters",
            )
