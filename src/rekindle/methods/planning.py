"""What one method would do to a model: its own plan, held to what is frozen, copied, and told of every parameter."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from rekindle.edits.copies import Copies, CopyLink, Follower, led
from rekindle.edits.edit import Edits, Skip
from rekindle.edits.record import Row
from rekindle.edits.transaction import Target
from rekindle.errors import NoEffectWarning, PlanError
from rekindle.graph import UnitGraph, trace
from rekindle.graph.modules import parameters_of
from rekindle.graph.names import is_statistic
from rekindle.graph.scan import scan
from rekindle.graph.surroundings import restored_on_failure
from rekindle.methods.kinds import kind_of
from rekindle.observe import Data, Loss, Reference, gather

FROZEN = "frozen (requires_grad=False); frozen=True treats it"


@dataclass(frozen=True, eq=False)
class Given:
    """What a treatment is given beside methods, model and optimizer; see `rekindle.apply_`."""

    example: Any = None
    graph: UnitGraph | None = None
    data: Data | None = None
    loss: Loss | None = None
    reference: Reference | None = None
    copies: Copies | None = None
    frozen: bool = False
    seed: int = 0


def graph_of(model: Target, example: Any, graph: UnitGraph | None = None) -> UnitGraph:
    """Return the graph that was given, or trace the model, or scan it where there is no example.

    Raises:
        PlanError: There is only a state dict and no graph.
    """
    if graph is not None:
        _refuse_other_graph(model, graph)
        return graph
    if not isinstance(model, nn.Module):
        raise PlanError(
            expected="graph= beside a state dict",
            got=f"a {type(model).__name__} alone",
            fix="trace the model once with rk.trace(model, example) and pass the result as graph=",
        )
    return scan(model) if example is None else trace(model, example, strict=False)


def _refuse_other_graph(model: Target, graph: UnitGraph) -> None:
    """Refuse a graph that does not have the parameters of a live model."""
    if not isinstance(model, nn.Module):
        return
    shapes = {name: tuple(parameter.shape) for name, parameter in parameters_of(model).items()}
    if shapes != {name: tuple(shape) for name, shape in graph.parameters.items()}:
        odd = sorted(set(shapes.items()) ^ {(name, tuple(shape)) for name, shape in graph.parameters.items()})
        raise PlanError(
            expected="graph= of this model as it is",
            got=f"one of another: {odd[0][0]} and {len(odd) - 1} more differ" if odd else "one of another order",
            fix="trace the model again, or leave graph= out and pass example=",
        )


def plan_link(method: Any, model: Target, graph: UnitGraph, given: Given, found: Sequence[Follower] = ()) -> Edits:
    """Return what a method would do to a model as it is now, with a word about every parameter.

    Args:
        method: Settings of a one-shot method, or the link that makes copies.
        model: The model or its state dict.
        graph: Its graph.
        given: What else there is.
        found: Networks that follow others.

    Raises:
        PlanError: The method is no one-shot method, or cannot be planned with what was given.
    """
    if isinstance(method, CopyLink):
        return method.edits()
    if kind_of(method) != "one-shot":
        raise PlanError(
            expected="a one-shot method, as a spec string or as settings",
            got=f"{method.key}, a method of kind {method.kind}",
            fix=f'write for example "fire"; {method.key} works beside a training: see `rekindle list {method.key}`',
        )
    frozen = frozen_in(model) if not given.frozen else frozenset()
    with restored_on_failure(model if isinstance(model, nn.Module) else None):
        known = {"data": given.data, "loss": given.loss, "example": given.example}
        evidence = gather(given.reference, given.seed, model=model, graph=graph, **known)
        content = named(method.plan(graph, replace(evidence, frozen=frozen), given.seed), method.key)
    content = led(without_frozen(content, graph, frozen), found)
    copied = {name for each in found for name in each.tensors}
    content = accounted(content, graph, frozen, copied, method.key)
    return content if isinstance(model, nn.Module) else _of_a_state_dict(content, model, graph)


def _of_a_state_dict(content: Edits, state: Mapping[str, Tensor], graph: UnitGraph) -> Edits:
    """Return a plan that says what a state dict does not tell, and which of its tensors are not in the graph."""
    known = {*graph.parameters, *graph.statistics(), *(other for others in graph.aliases.values() for other in others)}
    known |= {edit.tensor for edit in content.edits}
    strange = [name for name, tensor in state.items() if name not in known and tensor.is_floating_point()]
    skips = tuple(Skip(name, "not in the graph that was given") for name in strange)
    told = "a state dict does not tell which parameters are frozen: none was taken for it"
    return replace(content, skips=content.skips + skips, notices=(*content.notices, told))


def named(content: Edits, key: str) -> Edits:
    """Return a plan whose edits and operations have the method's key for a reason, where none was given."""
    edits = tuple(edit if edit.reason else replace(edit, reason=key) for edit in content.edits)
    surgery = tuple(each if each.reason else replace(each, reason=key) for each in content.surgery)
    return replace(content, edits=edits, surgery=surgery)


def frozen_in(model: Target) -> frozenset[str]:
    """Return the names of a model's frozen parameters, and of statistics that belong to frozen layers.

    A state dict does not tell.
    """
    if not isinstance(model, nn.Module):
        return frozenset()
    still = {name for name, parameter in parameters_of(model).items() if not parameter.requires_grad}
    layers = {name.rpartition(".")[0] for name in still}
    trained = {name.rpartition(".")[0] for name, p in parameters_of(model).items() if p.requires_grad}
    kept = [name for name, _ in model.named_buffers() if name.rpartition(".")[0] in layers - trained]
    return frozenset(still) | frozenset(name for name in kept if is_statistic(name))


def without_frozen(content: Edits, graph: UnitGraph, frozen: frozenset[str]) -> Edits:
    """Return a plan without edits of frozen tensors, and of those that make sense only together with one."""
    if not frozen:
        return content
    bound = _bound(graph)
    kept, skips = [], dict.fromkeys(content.skips)
    for edit in content.edits:
        still = sorted({edit.tensor, *bound.get(edit.tensor, ())} & frozen)
        if not still:
            kept.append(edit)
        elif edit.tensor in frozen:
            skips[Skip(edit.tensor, FROZEN)] = None
        else:
            skips[Skip(edit.tensor, f"goes with {still[0]}, which is frozen")] = None
    return replace(content, edits=tuple(kept), skips=tuple(skips))


def _bound(graph: UnitGraph) -> dict[str, set[str]]:
    """Return for each tensor those that are edited with it or not at all: direction and gain of weight_norm."""
    bound: dict[str, set[str]] = {}
    for gain, (direction, _) in graph.gains.items():
        bound.setdefault(gain, set()).add(direction)
        bound.setdefault(direction, set()).add(gain)
    return bound


def accounted(content: Edits, graph: UnitGraph, frozen: frozenset[str], copied: set[str], key: str) -> Edits:
    """Return a plan that says something about every parameter: it is edited, or left alone with a reason."""
    told = {edit.tensor for edit in content.edits} | {skip.tensor.partition("[")[0] for skip in content.skips}
    told |= {name for operation in content.surgery for name in operation.freezes} | copied
    silent = [name for name in graph.parameters if name not in told]
    skips = tuple(Skip(name, _why(name, graph, frozen, key)) for name in silent)
    return replace(content, skips=content.skips + skips)


def _why(name: str, graph: UnitGraph, frozen: frozenset[str], key: str) -> str:
    if name in frozen:
        return FROZEN
    if name in graph.uncovered:
        return graph.uncovered[name]
    if len(graph.parameters[name]) < 2:
        return f"a vector (bias, scale or shift), which {key} leaves alone"
    known = (
        "not a weight that" if graph.traced or graph.weights_of(name) else "no weight of a layer that is known, which"
    )
    return f"{known} {key} treats with these settings"


def warn_of_nothing(
    chain: Sequence[Any], content: Edits, rows: Sequence[Row] | None = None, *, stacklevel: int
) -> None:
    """Warn if a plan changes nothing, with the reasons.

    Args:
        chain: The methods.
        content: What was planned.
        rows: The edits in numbers, if they are known: those of a matrix of zeros may leave it as it is.
        stacklevel: Of the warning, from the caller's caller.
    """
    still = rows is not None and bool(rows) and not any(row.changed for row in rows)
    if (content.edits and not still) or content.surgery:
        return
    named = " + ".join(map(str, chain))
    reasons = ["every value that it edits stays as it is"] if still else []
    reasons += dict.fromkeys(skip.reason for skip in content.skips)
    why = "; ".join(reasons[:3]) or "there is nothing that it applies to with these settings"
    warnings.warn(f"the plan of {named} changes nothing: {why}", NoEffectWarning, stacklevel=stacklevel + 1)
