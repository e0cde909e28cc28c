"""The Keeper: per-step methods, recyclers and one-shot methods inside a loop that is the user's own.

keeper = rk.Keeper(model, optimizer, ["soft_rescale", "redo"], example=x)
for inputs, targets in data:
loss = criterion(model(inputs), targets) + keeper.penalty()
optimizer.zero_grad()
loss.backward()
optimizer.step()
keeper.step()
keeper.boundary(new_data)   # one-shot methods, when new data arrives
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.core import apply
from rekindle.core.edit import Edit
from rekindle.core.errors import KeeperError
from rekindle.core.record import ChangeRecord
from rekindle.core.registry import methods as methods_of
from rekindle.core.running import Running, Site
from rekindle.graph import UnitGraph, trace
from rekindle.graph.scan import scan
from rekindle.observe import Data, Loss, Reference, gather
from rekindle.observe.activations import Watch
from rekindle.recycle import recyclable, recycle
from rekindle.treat import apply_


class Keeper:
    """Runs methods beside the user's own training loop.

    Attributes:
        steps: Number of calls of `step`.
        recycled: How many units were recycled so far, by group.
        left_alone: Groups that recyclers cannot treat, with the reason.
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
        seed: int = 0,
    ) -> None:
        """Prepare methods, and attach to a model if there is one.

        Args:
            model: The model; it may be compiled or wrapped in DistributedDataParallel.
            optimizer: One, or several; moments are cleared where units are recycled or weights edited.
            methods: Spec strings or settings, one or several.
            example: Input for the model, from which its structure is traced; recyclers and most others need it.
            graph: The model's graph, if it was traced before.
            reference: Initial weights; those of the model now, if left out.
            seed: Seed of every draw.
        """
        every = methods_of(methods)
        self._per_step = tuple(one for one in every if hasattr(one, "start"))
        self._at_boundaries = tuple(one for one in every if not hasattr(one, "start"))
        self._example, self._reference, self._seed = example, reference, seed
        self.steps = self._boundaries = 0
        self.recycled: Counter[str] = Counter()
        self.left_alone: dict[str, str] = {}
        self._running: tuple[Running, ...] = ()
        self._model: nn.Module | None = None
        self._graph = graph
        self._watch: Watch | None = None
        self._closed = False
        if model is not None:
            self.attach(model, optimizer)

    def attach(self, model: nn.Module, optimizer: Optimizer | Sequence[Optimizer] | None = None) -> None:
        """Begin to work on a model.

        Raises:
            KeeperError: The Keeper works on a model already, or was closed.
        """
        if self._model is not None or self._closed:
            raise KeeperError(
                expected="a Keeper that is not attached yet",
                got="one that was closed" if self._closed else "one that works on a model",
                fix="make a new Keeper for another model",
            )
        model = unwrapped(model)
        given = () if optimizer is None else (optimizer,) if isinstance(optimizer, Optimizer) else tuple(optimizer)
        self._model, self._optimizers = model, given
        self._parameters = tuple(model.parameters())
        if not self._per_step:
            return
        self._graph = self._graph or (
            scan(model) if self._example is None else trace(model, self._example, strict=False)
        )
        self._watch = self._watching(model, self._graph)
        site = Site(model, self._graph, apply.tensors_of(model), given, self._initial(model), self._seed, self._watch)
        self._running = tuple(one.start(site) for one in self._per_step)
        self._look_ahead()

    def _initial(self, model: nn.Module) -> Mapping[str, Tensor]:
        found = gather(self._reference, self._seed).reference if self._reference is not None else None
        return found if found is not None else {n: t.detach().clone() for n, t in apply.tensors_of(model).items()}

    def _watching(self, model: nn.Module, graph: UnitGraph) -> Watch | None:
        wanted = [quantity for one in self._per_step for quantity in getattr(one, "observes", ())]
        if not any(one.card.kind == "recycler" for one in self._per_step):
            return None
        example = self._seen_example()
        groups, self.left_alone = recyclable(graph)
        if not wanted:
            return None
        watch = Watch(model, groups, wanted, example)
        self.left_alone |= watch.unseen
        return watch

    def _seen_example(self) -> Any:
        if self._example is None:
            raise KeeperError(
                expected="example= for recyclers, which must see where units are written and read",
                got="none",
                fix="pass example= with an input of your model",
            )
        return self._example

    def penalty(self) -> Tensor | float:
        """Return the term that methods add to the loss; 0.0 if none does."""
        self._check()
        terms = [term for one in self._running if (term := one.penalty()) is not None]
        return sum(terms[1:], terms[0]) if terms else 0.0

    def step(self) -> None:
        """Act after the optimizer's step, once for each (not for each of several accumulated batches)."""
        self._check()
        self.steps += 1
        if not self._running:
            return
        for one in self._running:
            for update in one.after_step(self.steps):
                apply.carry_out(update, self._optimizers)
        for method, one in zip(self._per_step, self._running, strict=True):
            edits = one.edits(self.steps)
            if edits is not None and edits.edits:
                self._write(edits.edits)
            chosen = {name: units for name, units in one.choose(self.steps).items() if len(units)}
            if chosen:
                self._recycle(method, one, chosen)
        self._look_ahead()

    def _recycle(self, method: Any, one: Running, chosen: Mapping[str, Tensor]) -> None:
        assert self._graph is not None
        assert self._model is not None
        means: Mapping[str, Tensor] = getattr(one, "means", dict)()
        reason = f"{method.key} at step {self.steps}"
        edits = recycle(self._graph, chosen, reason, self._seed, self._model, means)
        self._write(edits.edits)
        self.recycled.update({name: len(units) for name, units in chosen.items()})

    def _write(self, edits: Sequence[Edit]) -> None:
        assert self._graph is not None
        assert self._model is not None
        tensors = apply.tensors_of(self._model)
        apply.write_one_by_one(edits, tensors, self._all_optimizers(), self._graph.aliases)

    def _look_ahead(self) -> None:
        if self._watch is not None:
            self._watch.clear()
            self._watch.active = any(one.watches(self.steps + 1) for one in self._running)

    def boundary(self, data: Data | None = None, *, loss: Loss | None = None) -> list[ChangeRecord]:
        """Apply the one-shot methods, as when new data arrives.

        Args:
            data: Batches, for methods that look at them.
            loss: Function (model, batch) -> scalar, for methods that look at gradients.

        Returns:
            A record for each method.
        """
        self._check()
        assert self._model is not None
        self._boundaries += 1
        records: list[ChangeRecord] = []
        for one in self._at_boundaries:
            record = apply_(
                one,
                self._model,
                self._all_optimizers(),
                example=self._example,
                graph=None if self._structure_changed(records) else self._graph,
                data=data,
                loss=loss,
                reference=self._reference,
                seed=self._seed + self._boundaries,
            )
            records.append(record)
        if self._structure_changed(records):
            self._start_again()
        return records

    def _structure_changed(self, records: Sequence[ChangeRecord]) -> bool:
        return any(record.grafts for record in records)

    def _start_again(self) -> None:
        """Trace the changed model and let the per-step methods begin anew on it."""
        model, optimizers, steps = self._model, self._optimizers, self.steps
        assert model is not None
        if self._watch is not None:
            self._watch.close()
        self._model = self._graph = self._watch = None
        self._running = ()
        self.attach(model, optimizers)
        self.steps = steps
        self._look_ahead()

    def _all_optimizers(self) -> Any:
        if len(self._optimizers) < 2:
            return self._optimizers[0] if self._optimizers else None
        return _Several(self._optimizers)

    def rebase(self) -> None:
        """Take the weights as they are for the new start, in methods that have one (`soft_rescale`)."""
        self._check()
        for one in self._running:
            one.rebase()

    def state_dict(self) -> dict[str, Any]:
        """Return what must be saved beside model and optimizer to go on bit-equal."""
        self._check()
        return {
            "steps": self.steps,
            "boundaries": self._boundaries,
            "recycled": dict(self.recycled),
            "methods": [str(one) for one in self._per_step],
            "running": [one.state_dict() for one in self._running],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Raises:
            KeeperError: It was saved with other methods.
        """
        self._check()
        own = [str(one) for one in self._per_step]
        if state["methods"] != own:
            raise KeeperError(
                expected=f"a state saved with the methods {own}",
                got=f"one saved with {state['methods']}",
                fix="make the Keeper with the same methods and settings as before",
            )
        self.steps, self._boundaries = state["steps"], state["boundaries"]
        self.recycled = Counter(state["recycled"])
        for one, saved in zip(self._running, state["running"], strict=True):
            one.load_state_dict(saved)
        self._look_ahead()

    def close(self) -> None:
        """Remove every hook; the model stays as it is."""
        if self._watch is not None:
            self._watch.close()
        self._running = ()
        self._closed = True

    def _check(self) -> None:
        if self._closed or self._model is None:
            raise KeeperError(
                expected="a Keeper that works on a model",
                got="one that was closed" if self._closed else "one without a model",
                fix="pass the model to rk.Keeper(model, ...), or call keeper.attach(model, optimizer) first",
            )
        if not self._running:
            return
        now = tuple(self._model.parameters())
        if len(now) != len(self._parameters) or any(a is not b for a, b in zip(now, self._parameters, strict=True)):
            raise KeeperError(
                expected="the parameters that the Keeper was attached to",
                got="a model whose parameters were replaced or that has others",
                fix="load weights with load_state_dict, which keeps the parameters; after a change of structure make a "
                "new Keeper",
            )


class _Several:
    """Several optimizers that look like one to what clears and moves optimizer state."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.state = ChainMap(*(optimizer.state for optimizer in optimizers))
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside torch.compile and DistributedDataParallel.

    Example:
        >>> net = nn.Linear(2, 2)
        >>> unwrapped(torch.compile(net)) is net
        True
    """
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            inner = model.module
        if inner is None:
            return model
        model = inner
