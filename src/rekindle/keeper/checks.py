"""What a Keeper refuses before it begins, each with what to do instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import nn

from rekindle.errors import KeeperError
from rekindle.graph import UnitGraph
from rekindle.graph.modules import parameters_of
from rekindle.graph.plain import valueless
from rekindle.methods.kinds import PerStepMethod, kind_of
from rekindle.methods.state import MethodState


def refuse_method(method: Any) -> None:
    """Refuse what cannot work beside an optimizer."""
    if kind_of(method) == "optimizer":
        key = method.key
        raise KeeperError(
            expected="methods that work beside an optimizer",
            got=f"{key}, which is one",
            fix=f"build it with optimizer = rk.{key}(model, example=x), and pass that as the optimizer",
        )


def refuse_nothing_to_recycle(
    recyclers: Sequence[PerStepMethod], groups: Sequence[str], skipped: Mapping[str, str], unseen: Collection[str]
) -> None:
    """Refuse recyclers that would find no unit to recycle in this model, ever.

    Args:
        recyclers: Recyclers of units.
        groups: Groups that can be recycled, before a method's own `skip`.
        skipped: Why others cannot.
        unseen: Groups whose activations cannot be seen; of no use to methods that look at them.
    """
    for one in recyclers:
        left = [name for name in groups if not getattr(one, "observes", ()) or name not in unseen]
        if not left:
            reasons = "; ".join(dict.fromkeys(f"{name}: {why}" for name, why in list(skipped.items())[:4]))
            raise KeeperError(
                expected=f"a model with hidden units that {one.key} can recycle",
                got=f"none; {reasons or 'it has no groups of units'}",
                fix="pass an example that goes through the part you mean, unfreeze it (or frozen=True), or leave out "
                f"{one.key} and take a method that needs no units, such as soft_rescale or selective_reinit",
            )


def refuse_nothing_to_keep(model: nn.Module, graph: UnitGraph, *, frozen: bool = False) -> None:
    """Refuse a model of which no parameter can be treated.

    None holds plain floats, they have no values, or all that are trained belong to adapters.
    """
    empty = valueless(parameters_of(model))
    if empty:
        raise KeeperError(
            expected="parameters with values",
            got=f"{empty[0]} on the meta device, which has none",
            fix="load the weights first, and make the Keeper then",
        )
    if graph.parameters and all(name in graph.not_plain for name in graph.parameters):
        name, why = next(iter(graph.not_plain.items()))
        raise KeeperError(
            expected="a model with parameters of plain floats",
            got=f"none; {name}: {why}",
            fix="add trained parameters (adapters) to it, or take the model before it was converted",
        )
    trained = [name for name, p in parameters_of(model).items() if p.requires_grad or frozen]
    if graph.adapters and all(name in graph.adapters or name in graph.not_plain for name in trained):
        name, why = next(iter(graph.adapters.items()))
        raise KeeperError(
            expected="trained parameters that are no adapters",
            got=f"adapters alone; {name}: {why}",
            fix="pass frozen=True to treat the base under the adapters (an adapter saved alone does not hold that), or "
            "train modules of their own (modules_to_save)",
        )


def changes_structure(method: Any) -> bool:
    """Tell whether a method puts modules into a model or takes parameters out of training, with its settings."""
    return bool(getattr(method, "changes_structure", method.card.structural))


def refuse_structural(methods: Sequence[Any]) -> None:
    """Refuse methods that replace parameters which DistributedDataParallel holds."""
    for one in methods:
        if changes_structure(one):
            raise KeeperError(
                expected="methods that keep the parameters, for a model inside DistributedDataParallel",
                got=f"{one.key}, which changes the structure",
                fix=f'call rk.apply_("{one.key}", model.module, optimizer, ...) and wrap the model anew afterwards',
            )


def refuse_state(state: Mapping[str, Any], methods: list[str], seed: int) -> None:
    """Refuse a state that was saved by something else, or with other methods, settings or seed."""
    needed = {"steps", "boundaries", "seed", "recycled", "methods", "running"}
    missing = sorted(needed - set(state))
    if missing or state["methods"] != methods or state["seed"] != seed:
        raise KeeperError(
            expected=f"a state saved by a Keeper with the methods {methods} and seed {seed}",
            got=f"one without {', '.join(missing)}" if missing else f"{state['methods']} and seed {state['seed']}",
            fix="make the Keeper with the same methods, settings and seed as before",
        )


def state_of(key: str, methods: Sequence[PerStepMethod], states: Sequence[MethodState]) -> MethodState:
    """Return the state of the method with a key.

    Raises:
        KeeperError: There is none.
    """
    found = {method.key: one for method, one in zip(methods, states, strict=True)}
    if key not in found:
        raise KeeperError(
            expected=f"a per-step method of this Keeper: {', '.join(found) or 'there is none'}",
            got=repr(key),
            fix="name it in methods= of the Keeper; one-shot methods act at boundaries only",
        )
    return found[key]
