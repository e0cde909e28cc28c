"""Plan a treatment for a model, or carry it out: the two calls behind every one-shot method."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.edits import operate, write
from rekindle.edits.edit import Edits
from rekindle.edits.plan import Plan
from rekindle.edits.record import ChangeRecord
from rekindle.errors import EditError, NoEffectWarning, PlanError
from rekindle.graph import UnitGraph, trace
from rekindle.graph.modules import tensors_of
from rekindle.graph.scan import scan
from rekindle.methods.registry import methods
from rekindle.observe import STALE, Data, Loss, Reference, gather, stale

Target = nn.Module | Mapping[str, Tensor]
# What `apply_` takes beside method, model and optimizer.
CONTEXT = ("undo", "example", "graph", "data", "loss", "reference", "seed")


def plan(
    method: Any,
    model: Target,
    *,
    example: Any = None,
    graph: UnitGraph | None = None,
    data: Data | None = None,
    loss: Loss | None = None,
    reference: Reference | None = None,
    seed: int = 0,
) -> Plan:
    """Return what a method would do to a model; nothing is written.

    Args:
        method: A spec string ("fire", "shrink_perturb:shrink=0.5", several joined with "+"), or settings.
        model: The model; or its state dict, if `graph` is given.
        example: Input for the model, from which its structure is traced. Methods that need roles ask for it.
        graph: The model's graph, if it was traced before.
        data: Batches for methods that look at gradients: an iterable of (inputs, targets), dicts or tensors.
        loss: Function (model, batch) -> scalar; cross entropy if left out and targets are integers.
        reference: Initial weights: a state dict, a model, or a function that builds a fresh model.
        seed: Seed of every random draw, together with the tensor's name.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> len(plan("fire", net, example=torch.zeros(1, 4)).edits)
        2
    """
    chain = methods(method)
    graph = _graph(model, example, graph)
    evidence = gather(reference, seed, model=model, graph=graph, data=data, loss=loss, example=example)
    content = Edits()
    for one in chain:
        if not hasattr(one, "plan"):
            raise PlanError(
                expected="a one-shot method, as a spec string or as settings",
                got=f"{type(one).__name__}",
                fix='write for example "fire" or rk.method("fire:scale=norm")',
            )
        content = content + one.plan(graph, evidence, seed)
    if not content.edits and not content.surgery:
        named = " + ".join(map(str, chain))
        warnings.warn(f"the plan of {named} changes nothing{_why(content)}", NoEffectWarning, stacklevel=2)
    return Plan(chain[0] if len(chain) == 1 else chain, content, _tensors(model), graph.views())


def apply_(
    method: Any,
    model: Target,
    optimizer: Optimizer | None = None,
    *,
    example: Any = None,
    graph: UnitGraph | None = None,
    data: Data | None = None,
    loss: Loss | None = None,
    reference: Reference | None = None,
    seed: int = 0,
    undo: bool = True,
) -> ChangeRecord:
    """Treat a model in place, all or nothing, and keep its optimizer in step.

    Args:
        method: A spec string ("fire", "shrink_perturb:shrink=0.5", several joined with "+"), or settings.
        model: The model; or its state dict, if `graph` is given.
        optimizer: Its moments are cleared exactly where weights are edited; None leaves every optimizer alone.
        example: Input for the model, from which its structure is traced. Methods that need roles ask for it.
        graph: The model's graph, if it was traced before.
        data: Batches for methods that look at gradients: an iterable of (inputs, targets), dicts or tensors.
        loss: Function (model, batch) -> scalar; cross entropy if left out and targets are integers.
        reference: Initial weights: a state dict, a model, or a function that builds a fresh model.
        seed: Seed of every random draw, together with the tensor's name.
        undo: Keep the old values, so that the record can undo the change. False keeps nothing and needs memory for one
            tensor at a time; everything is then computed twice, once to check and once to write.

    Returns:
        What was changed and what was left alone; it prints as a table and can undo the change.

    Raises:
        RekindleError: Something does not fit. Model and optimizer are as they were.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> record = apply_("fire:solver=exact", net, example=torch.zeros(1, 4))
        >>> [round(float(s), 4) for s in torch.linalg.svdvals(net[0].weight)]  # sqrt(3/4)
        [0.866, 0.866, 0.866]
        >>> record.undo()
    """
    graph = _graph(model, example, graph)
    planned = plan(method, model, example=example, graph=graph, data=data, loss=loss, reference=reference, seed=seed)
    computed = write.compute(planned.edits, planned.tensors, views=planned.views)
    changes = list(computed if undo else map(_without_values, computed))
    prepared = operate.prepare(planned.surgery, model)
    if undo:
        written = write.write(changes, planned.tensors, optimizer, graph.aliases)
    else:
        written = []
        write.write_one_by_one(planned.edits, planned.tensors, optimizer, graph.aliases)
    log = operate.carry_out(prepared, model, optimizer, written)
    return ChangeRecord(
        method=planned.method,
        rows=tuple(row for change in changes for row in change.rows),
        skips=planned.skips,
        notices=planned.notices
        + write.not_cleared(optimizer, changes, planned.tensors)
        + _due(graph, changes)
        + tuple(log.notices),
        surgery=planned.surgery,
        _undo=(lambda force: operate.undo_all(log, written, force=force)) if undo else _no_undo,
    )


def _without_values(change: write.Change) -> write.Change:
    return replace(change, new=change.old, stale=None)


def _no_undo(force: bool) -> None:
    raise EditError(
        expected="a record that kept the old values",
        got="one made with undo=False",
        fix="leave undo=False out when you may want to go back; it costs a copy of every edited tensor",
    )


def treat_(settings: type[Any], model: Target, optimizer: Optimizer | None, given: dict[str, Any]) -> ChangeRecord:
    """Apply a method given as its settings class, with settings and context (example, seed, ...) in one dict.

    This is what stands behind `fire_` and its like, so that all of them take the same context.
    """
    context = {name: given.pop(name) for name in CONTEXT if name in given}
    return apply_(settings(**given), model, optimizer, **context)


def _graph(model: Target, example: Any, graph: UnitGraph | None) -> UnitGraph:
    if graph is not None:
        return graph
    if not isinstance(model, nn.Module):
        raise PlanError(
            expected="graph= beside a state dict",
            got=f"a {type(model).__name__} alone",
            fix="trace the model once with rk.trace(model, example) and pass the result as graph=",
        )
    return scan(model) if example is None else trace(model, example, strict=False)


def _due(graph: UnitGraph, changes: Sequence[write.Change]) -> tuple[str, ...]:
    rows = [row for change in changes for row in change.rows]
    edited = {row.tensor for row in rows if row.changed or row.tensor not in graph.parameters}  # fresh statistics fit
    return (STALE,) if stale(graph, edited) else ()


def _tensors(model: Target) -> Mapping[str, Tensor]:
    return tensors_of(model) if isinstance(model, nn.Module) else model


def _why(content: Edits) -> str:
    reasons = sorted({skip.reason for skip in content.skips})
    return f": {'; '.join(reasons[:3])}" if reasons else ": there is nothing that it applies to with these settings"
