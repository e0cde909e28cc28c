"""Plan a treatment for a model, or carry it out: the two calls behind every one-shot method."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from rekindle.edits.copies import Copies, CopyLink, followers
from rekindle.edits.optimizer_state import OptimizerState, as_sequence, refuse_strangers
from rekindle.edits.plan import Plan, PlannedLink
from rekindle.edits.record import ChangeRecord
from rekindle.edits.transaction import Target, prepare
from rekindle.errors import PlanError
from rekindle.graph import UnitGraph
from rekindle.graph.modules import tensors_of
from rekindle.graph.unwrap import bare, refuse_sharded
from rekindle.methods.planning import Given, graph_of, plan_link, warn_of_nothing
from rekindle.methods.registry import methods
from rekindle.methods.treatment import Treatment
from rekindle.observe import Data, Loss, Reference


def plan(
    method: Any,
    model: Target,
    *,
    example: Any = None,
    graph: UnitGraph | None = None,
    data: Data | None = None,
    loss: Loss | None = None,
    reference: Reference | None = None,
    copies: Copies | None = None,
    frozen: bool = False,
    seed: int = 0,
) -> Plan:
    """Return what a method would do to a model; nothing is written.

    The links of a chain are planned one after the other, each on a copy of what the ones before leave.

    Args:
        method: A spec string ("fire", "shrink_perturb:shrink=0.5", several joined with "+"), or settings.
        model: The model; or its state dict, if `graph` is given.
        example: Input for the model, from which its structure is traced. Methods that need roles ask for it.
        graph: The model's graph, if it was traced before.
        data: Batches for methods that look at gradients: an iterable of (inputs, targets), dicts (with `labels`), or
            tensors.
        loss: Function (model, batch) -> scalar. Left out: the model's own loss where it gives one, else the cross
            entropy of its logits and integer targets.
        reference: Initial weights: a state dict, a model, or a function that builds a fresh model.
        copies: Networks that follow others (a target network, an average), by their paths: `{"target": "online"}` has
            the one copied from the other afterwards, `{"target": ("online", "alike")}` has it treated alike.
        frozen: Treat parameters with `requires_grad=False` too; otherwise they stay, and the record says so.
        seed: Seed of every random draw, together with the tensor's name.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> len(plan("fire", net, example=torch.zeros(1, 4)).edits)
        2
    """
    chain, model = methods(method), entered(model)
    given = Given(example, graph, data, loss, reference, copies, frozen, seed)
    found = followers(copies, model)
    links = [*chain, *([CopyLink(found)] if any(not each.alike for each in found) else [])]
    planned: list[PlannedLink] = []
    for number, link in enumerate(links):
        known = graph_of(model, example, graph, chain)
        content = plan_link(link, model, known, given, found)
        planned.append(PlannedLink(content, _tensors(model), known.views()))
        if number + 1 < len(links):
            model = _copied(model)  # the plan before keeps the tensors that it speaks of
            prepare(content, model, aliases=known.aliases, keep=False, measured=False).commit()
            graph = None if content.surgery else known
    made = Plan(chain[0] if len(chain) == 1 else chain, tuple(planned))
    warn_of_nothing(chain, made.content, stacklevel=3)
    return made


def apply_(
    method: Any,
    model: Target,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    example: Any = None,
    graph: UnitGraph | None = None,
    data: Data | None = None,
    loss: Loss | None = None,
    reference: Reference | None = None,
    copies: Copies | None = None,
    frozen: bool = False,
    optimizer_state: OptimizerState | None = None,
    undo: bool = True,
    seed: int = 0,
) -> ChangeRecord:
    """Treat a model in place, all or nothing, and keep its optimizer in step.

    Args:
        method: A spec string ("fire", "shrink_perturb:shrink=0.5", several joined with "+"), or settings.
        model: The model; or its state dict, if `graph` is given.
        optimizer: One, or several. What it keeps of edited weights begins again, by what it means; None leaves every
            optimizer alone.
        example: Input for the model, from which its structure is traced. Methods that need roles ask for it.
        graph: The model's graph, if it was traced before.
        data: Batches for methods that look at gradients: an iterable of (inputs, targets), dicts (with `labels`), or
            tensors.
        loss: Function (model, batch) -> scalar. Left out: the model's own loss where it gives one, else the cross
            entropy of its logits and integer targets.
        reference: Initial weights: a state dict, a model, or a function that builds a fresh model.
        copies: Networks that follow others (a target network, an average), by their paths: `{"target": "online"}` has
            the one copied from the other afterwards, `{"target": ("online", "alike")}` has it treated alike.
        frozen: Treat parameters with `requires_grad=False` too; otherwise they stay, and the record says so.
        optimizer_state: "keep" or "drop" what the optimizer keeps of edited tensors, whatever it means. Needed for an
            optimizer that is not known.
        undo: Keep the old values, so that the record can undo the change. False keeps nothing and needs memory for one
            tensor at a time; everything is then computed twice, once to check and once to write. Once it has begun to
            write it goes on to the end, also after an interrupt, which then carries the record as `.record`.
        seed: Seed of every random draw, together with the tensor's name.

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
    chain, model, optimizers = methods(method), entered(model), as_sequence(optimizer)
    if isinstance(model, nn.Module):
        refuse_strangers(optimizers, model, PlanError)
    given = Given(example, graph, data, loss, reference, copies, frozen, seed)
    return Treatment(chain, model, optimizers, given, optimizer_state=optimizer_state, keep=undo).carry_out_as_one()


def entered(model: Target) -> Target:
    """Return a model without its wrappers; refuse what is sharded."""
    if isinstance(model, nn.Module):
        return bare(model)
    refuse_sharded(model)
    return model


def _copied(model: Target) -> Target:
    if not isinstance(model, nn.Module):
        return {name: tensor.clone() for name, tensor in model.items()}
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise PlanError(
            expected="a model that copy.deepcopy can copy: a chain is planned on copies of what each link leaves",
            got=f"{type(error).__name__}: {error}",
            fix="plan each method by itself; rk.apply_ takes the chain as it is",
        ) from error


def _tensors(model: Target) -> Mapping[str, Tensor]:
    return tensors_of(model) if isinstance(model, nn.Module) else model
