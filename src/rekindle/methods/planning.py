"""What one method would do to a model: its own plan, held to what is frozen, copied, and told of every parameter."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from rekindle.edits.copies import Copies, CopyLink, Follower, has_lookalikes, led
from rekindle.edits.edit import Edits, Skip
from rekindle.edits.record import Row
from rekindle.edits.transaction import Target
from rekindle.errors import NoEffectWarning, PlanError
from rekindle.graph import UnitGraph, trace
from rekindle.graph.modules import parameters_of, tensors_of
from rekindle.graph.plain import not_plain, not_plain_in, shapes_of
from rekindle.graph.scan import scan
from rekindle.graph.surroundings import restored_on_failure
from rekindle.methods.kept import accounted, kept_in, without_kept
from rekindle.methods.kinds import kind_of, scan_is_enough
from rekindle.observe import Data, Loss, Reference, gather


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


def graph_of(model: Target, example: Any, graph: UnitGraph | None = None, methods: Sequence[Any] = ()) -> UnitGraph:
    """Return the graph that was given, or trace the model, or scan it where that is enough or there is no example.

    Args:
        model: The model or its state dict.
        example: Input for the model.
        graph: What was given.
        methods: Those that the graph is for, if that is all that it is for.

    Raises:
        PlanError: There is only a state dict and no graph.
    """
    if graph is not None:
        if isinstance(model, nn.Module):
            refuse_other_graph(shapes_of(parameters_of(model)), graph)
        return _held_to(model, graph)
    if not isinstance(model, nn.Module):
        raise PlanError(
            expected="graph= beside a state dict",
            got=f"a {type(model).__name__} alone",
            fix="trace the model once with rk.trace(model, example) and pass the result as graph=",
        )
    if example is None:
        return scan(model)
    if methods and all(map(scan_is_enough, methods)):
        found = scan(model)
        if scan_tells_all(found, model):
            return found
    return trace(model, example, strict=False)


def scan_tells_all(found: UnitGraph, model: nn.Module) -> bool:
    """Tell whether a trace would tell a method that needs no roles, and its record, no more than a scan did.

    A trace also knows the initializers of normalization layers that are of no known class, the matrices in layers that
    are of none (a record has their deviation from isometry), and submodules that the forward pass does not use, of
    which a record says that they look like copies of others.
    """
    tensors = tensors_of(model).items()
    matrices = {name for weight in found.weights for name in (weight.tensor, *(weight.gain or ())[:1])}
    return (
        all(found.has_initializer(name) for name, tensor in tensors if tensor.is_floating_point())
        and all(name in matrices for name, shape in found.parameters.items() if len(shape) > 1)
        and not found.unclear
        and not has_lookalikes(model)
    )


def _held_to(model: Target, graph: UnitGraph) -> UnitGraph:
    """Return a graph without the tensors that hold no plain floats in this model, whatever they did when it was made.

    Raises:
        PlanError: The graph left tensors out that hold plain floats now.
    """
    if isinstance(model, nn.Module):
        now, there = not_plain_in(model), set(graph.not_plain)
    else:
        now, there = not_plain(_tensors(model), graph.parameters), graph.not_plain.keys() & model.keys()
    gone = [name for name in graph.not_plain if name in there and name not in now]
    if gone:
        raise PlanError(
            expected="graph= of this model as it is",
            got=f"one made when {gone[0]} was no tensor of plain floats ({graph.not_plain[gone[0]]})",
            fix="trace the model again, or leave graph= out and pass example=",
        )
    return graph.leaving_out({name: why for name, why in now.items() if name not in graph.not_plain})


def _tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}


def refuse_other_graph(shapes: Mapping[str, Sequence[int]], graph: UnitGraph) -> None:
    """Refuse a graph of other parameters.

    Args:
        shapes: The parameters' own, by name.
        graph: What was given as graph=.

    Raises:
        PlanError: Names or shapes differ.
    """
    own = {(name, tuple(shape)) for name, shape in shapes.items()}
    odd = sorted(own ^ {(name, tuple(shape)) for name, shape in graph.parameters.items()})
    if odd:
        raise PlanError(
            expected="graph= of this model as it is",
            got=f"one of another: {odd[0][0]} and {len(odd) - 1} more differ",
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
    kept = kept_in(model, graph, frozen=given.frozen)
    with restored_on_failure(model if isinstance(model, nn.Module) else None):
        known = {"data": given.data, "loss": given.loss, "example": given.example}
        evidence = gather(given.reference, given.seed, model=model, graph=graph, **known)
        evidence = replace(evidence, frozen=frozenset(kept), not_plain=frozenset(graph.not_plain))
        content = named(method.plan(graph, evidence, given.seed), method.key)
    content = led(without_kept(content, graph, kept), found)
    copied = {name for each in found for name in each.tensors}
    content = accounted(content, graph, kept, copied, method.key)
    return content if isinstance(model, nn.Module) else _of_a_state_dict(content, model, graph)


def _of_a_state_dict(content: Edits, state: Mapping[str, Tensor], graph: UnitGraph) -> Edits:
    """Return a plan that says what a state dict does not tell, and which of its tensors are not in the graph."""
    known = {*graph.parameters, *graph.statistics(), *(other for others in graph.aliases.values() for other in others)}
    known |= {edit.tensor for edit in content.edits}
    tensors = _tensors(state)
    strange = [name for name, tensor in tensors.items() if name not in known and tensor.is_floating_point()]
    skips = [Skip(name, "not in the graph that was given") for name in strange]
    skips += [Skip(name, f"no tensor but a {type(state[name]).__name__}") for name in state if name not in tensors]
    told = "a state dict does not tell which parameters are frozen: none was taken for it"
    return replace(content, skips=(*content.skips, *skips), notices=(*content.notices, told))


def named(content: Edits, key: str) -> Edits:
    """Return a plan whose edits and operations have the method's key for a reason, where none was given."""
    edits = tuple(edit if edit.reason else replace(edit, reason=key) for edit in content.edits)
    surgery = tuple(each if each.reason else replace(each, reason=key) for each in content.surgery)
    return replace(content, edits=edits, surgery=surgery)


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
