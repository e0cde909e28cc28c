"""Per-step methods at work on a model: what they remember, what they see of the training, and what writes for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from rekindle.edits.compiler import reset_compiler
from rekindle.edits.optimizer_state import OptimizerState
from rekindle.graph import UnitGraph
from rekindle.graph.fingerprint import Fingerprint
from rekindle.graph.modules import tensors_of
from rekindle.graph.surroundings import Surroundings
from rekindle.keeper.acting import Actor
from rekindle.keeper.checks import refuse_nothing_to_keep
from rekindle.keeper.watching import begin_watching
from rekindle.methods.kinds import PerStepMethod
from rekindle.methods.planning import graph_of
from rekindle.methods.state import MethodContext, MethodState, StartingWeights
from rekindle.observe.activations import Watch


@dataclass(eq=False)
class Engaged:
    """Methods that have begun on a model. Another one takes its place as a whole when the structure changes.

    Attributes:
        graph: The model's graph.
        initial: The weights that methods take for the start.
        states: What each method remembers.
        watch: What is seen of activations, if any method looks at them.
        actor: Writes what methods want.
        fingerprint: Tells whether the model is still made of the same parts.
        skipped: Groups that recyclers cannot treat, and parameters that no method can, with the reason.
    """

    graph: UnitGraph
    initial: Mapping[str, Tensor]
    states: tuple[MethodState, ...]
    watch: Watch | None
    actor: Actor
    fingerprint: Fingerprint
    skipped: dict[str, str]

    def look_ahead(self, step: int) -> None:
        """Forget what was seen, and see the coming step only if a method wants it."""
        if self.watch is not None:
            self.watch.clear()
            self.watch.active = any(one.watches(step) for one in self.states)

    def asks_for_penalty(self) -> bool:
        """Tell whether a method adds a term to the loss."""
        return any(type(one).penalty is not MethodState.penalty for one in self.states)

    def open(self) -> None:
        """Put the hooks in, again after `close`."""
        if self.watch is not None:
            self.watch.open()
            reset_compiler()

    def close(self) -> None:
        """Take the hooks out."""
        if self.watch is not None:
            self.watch.close()
            reset_compiler()


def engage(
    methods: Sequence[PerStepMethod],
    model: nn.Module,
    optimizers: Sequence[Any],
    initial: Mapping[str, Tensor],
    *,
    example: Any,
    graph: UnitGraph | None,
    frozen: bool,
    optimizer_state: OptimizerState | None,
    seed: int,
) -> Engaged:
    """Let per-step methods begin on a model; if one cannot, no hook stays.

    Raises:
        KeeperError: A method cannot work on this model.
    """
    around = Surroundings(model)
    graph = graph_of(model, example, graph, methods)
    refuse_nothing_to_keep(model, graph, frozen=frozen)
    watch: Watch | None = None
    try:
        watch, skipped = begin_watching(methods, model, graph, example, frozen=frozen)
        context = MethodContext(model, graph, tensors_of(model), optimizers, initial, seed, watch, frozen)
        states = tuple(one.init(context) for one in methods)
        actor = Actor(model, graph, optimizers, optimizer_state, seed, skipped)
        return Engaged(graph, initial, states, watch, actor, Fingerprint(model, flags=not frozen), skipped)
    except BaseException:
        if watch is not None:
            watch.close()
        around.restore()
        raise


def initial_after(model: nn.Module, before: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the initial weights of a model whose structure has changed: those known before, new ones as they are."""
    if isinstance(before, StartingWeights):
        return StartingWeights(model, before)
    now = StartingWeights(model)
    return {**now, **{name: before[name] for name in now if name in before}}
