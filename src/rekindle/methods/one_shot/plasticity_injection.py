"""Plasticity injection: a new head beside the old one, which changes nothing until it has learned something."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from torch import Tensor, nn

from rekindle.edits.inserted import PARTS
from rekindle.methods import (
    Card,
    Edits,
    Evidence,
    PlanError,
    Skip,
    Surgery,
    Twins,
    UnitGraph,
    matches,
    modules_of,
    one_shot_method,
    submodule,
)

TIED = "it is tied to another part of the model, which would be frozen with it; give the head a weight of its own"

CARD = Card(
    title="Plasticity injection",
    source="Nikishin et al. 2023, Deep Reinforcement Learning with Plasticity Injection; FIRE D",
    what="Freezes the head and puts a new trainable head with its frozen twin beside it, so that outputs stay the same "
    "at that moment. y = frozen(x) + (new(x) - twin(x)), new and twin drawn alike by the head's own initializer.",
    when="When the head no longer learns and nothing of what it knows may be lost, as in reinforcement learning. It "
    "adds parameters each time, and it does nothing for the layers below the head; name a larger part with head= if "
    "they are the problem.",
    cost="Two copies of the head, and its forward pass three times.",
    deviations=(
        "The frozen head and the twin leave the optimizer and their state is dropped, and the new head takes their "
        "place in the same parameter group. In published code the head that should be frozen keeps training.",
        "Frozen head and twin stay in evaluation mode, so that running statistics in them do not move. With dropout or "
        "BatchNorm inside the head, outputs are therefore unchanged in evaluation mode only.",
        "The module at the head's path becomes a wrapper with children frozen, new and twin, so its parameters have "
        "new names. To load a saved state dict into a freshly built model use rk.restore_(model, state_dict).",
        "The default is the last linear layer; the papers inject all fully connected layers (DQN) or the whole critic "
        "(SAC), which is head=, the path of that module.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
>>> x = torch.randn(5, 8)
>>> before = net(x)
>>> record = rk.plasticity_injection_(net, example=x)
>>> torch.equal(net(x), before)
True
>>> [name for name, p in net.named_parameters() if p.requires_grad]
['0.weight', '0.bias', '2.new.weight', '2.new.bias']
""",
    structural=True,
)


@one_shot_method(CARD, identity={"skip": ("*",)})
class PlasticityInjection:
    """Settings of plasticity injection.

    Args:
        head: Path of the module to inject, or several; None takes the layers that write the model's outputs.
        skip: Patterns of module paths to leave alone.
    """

    key: ClassVar[str]

    head: tuple[str, ...] | str | None = None
    skip: tuple[str, ...] = ()

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an operation for each head."""
        if self.head is None:
            heads, skips = _heads(graph)
        else:
            given = [self.head] if isinstance(self.head, str) else self.head
            heads, skips = list(dict.fromkeys(_named(graph, evidence.model, head) for head in given)), []
        skips += [Skip(head, "named in skip") for head in heads if matches(head, self.skip)]
        surgery = tuple(self._graft(graph, evidence, head, seed) for head in heads if not matches(head, self.skip))
        return Edits((), tuple(skips), tuple(_notices(graph, surgery)), surgery)

    def _graft(self, graph: UnitGraph, evidence: Evidence, head: str, seed: int) -> Surgery:
        depth = _depth(graph, head)
        template = f"{head}.new" if depth else head
        reason = f"{self.key} {depth + 1}" if depth else self.key
        draws = {
            name.removeprefix(f"{template}."): _draw(graph, evidence, name, head, seed, reason)
            for name in (*graph.parameters, *graph.statistics())
            if _inside(name, template)
        }
        freezes = tuple(name for name in graph.parameters if _inside(name, head))
        return Surgery(head, Twins(template, draws), freezes, reason)


def _heads(graph: UnitGraph) -> tuple[list[str], list[Skip]]:
    """Return the modules that apply the weights of role "head", and those that cannot be replaced."""
    if not graph.traced:
        raise PlanError(
            expected="to know which module is the head",
            got="neither example= nor head=",
            fix='pass example=, an input for the model, or head=, the path of the module (head="fc")',
        )
    heads: dict[str, None] = {}
    written = {slot.tensor for group in graph.groups if group.kind == "output" for slot in group.incoming}
    skips = [Skip(weight.name, TIED) for weight in graph.weights if weight.tied and weight.tensor in written]
    skips += [Skip(name, f"perhaps a head: {why}; name it with head=") for name, why in graph.maybe_last.items()]
    for weight in graph.weights:
        if weight.role != "head" or weight.tied or weight.tensor in graph.maybe_last:
            continue
        path = _injected(graph, weight.module) or weight.module
        held = [other for other in graph.weights if _inside(other.tensor, path)]
        if weight not in held or not path:
            skips.append(Skip(weight.name, "no module of its own applies it; wrap it into one, such as nn.Linear"))
        elif any(other.role != "head" for other in held) and path == weight.module:
            skips.append(Skip(weight.name, f"{path} holds other weights too; name it with head= to inject it whole"))
        else:
            heads[path] = None
    return list(heads), skips


def _named(graph: UnitGraph, model: nn.Module | None, head: str) -> str:
    """Return the first path of a module that the user named, after checking that it can be injected."""
    if model is not None:
        module = submodule(model, head)
        head = next(path for path, other in modules_of(model).items() if other is module)
        _refuse_tied(head, _sharers(model, module))
    _refuse_tied(head, [weight.name for weight in graph.weights if weight.tied and _inside(weight.tensor, head)])
    if not any(_inside(name, head) for name in graph.parameters):
        modules = list(dict.fromkeys(weight.module for weight in graph.weights if weight.module))
        raise PlanError(
            expected="head: the path of a module with parameters, inside the model",
            got=repr(head),
            fix=f"use a name of model.named_modules(), for example {', '.join(modules[-3:])}",
        )
    return head


def _sharers(model: nn.Module, head: nn.Module) -> list[str]:
    """Return modules outside the head that have one of its parameters."""
    own, inside = {id(p) for p in head.parameters()}, {id(m) for m in head.modules()}
    others = [(path, m) for path, m in modules_of(model).items() if id(m) not in inside]
    return [path or "the model itself" for path, m in others if own & {id(p) for p in m._parameters.values()}]


def _refuse_tied(head: str, shared: Sequence[str]) -> None:
    if shared:
        raise PlanError(
            expected=f"a head whose parameters are its own at {head!r}",
            got=f"one that is tied to another use: {', '.join(shared)}",
            fix="freezing it would freeze the other part too: give the head a weight of its own first",
        )


def _inside(name: str, path: str) -> bool:
    return name.startswith(f"{path}.")


def _injected(graph: UnitGraph, path: str) -> str | None:
    """Return the outermost injected module that a path lies in; none for a path in no such module."""
    steps = path.split(".")
    return next((p for n in range(1, len(steps)) if _depth(graph, p := ".".join(steps[:n]))), None)


def _depth(graph: UnitGraph, head: str) -> int:
    """Return how often a module was injected before."""
    depth = 0
    while all(_any_below(graph, f"{head}{'.frozen' * depth}.{part}.") for part in PARTS):
        depth += 1
    return depth


def _any_below(graph: UnitGraph, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in graph.parameters)


def _draw(
    graph: UnitGraph, evidence: Evidence, name: str, head: str, seed: int, reason: str
) -> Callable[[Tensor], Tensor]:
    first = name.replace(f"{head}.new.", f"{head}.", 1) if _inside(name, f"{head}.new") else name
    shape = graph.parameters.get(name)
    if name in graph.not_plain:
        if 0 in (shape or ()):
            return lambda old: old.clone()  # there is nothing to draw
        raise PlanError(
            expected=f"plain floats in {name}, which is drawn afresh",
            got=graph.not_plain[name],
            fix="name another head, or take the model before it was converted",
        )
    if shape is not None and evidence.reference is not None:
        start = evidence.initial(first, shape, "plasticity_injection")
        return lambda old: start.to(old)
    if not graph.has_initializer(name):
        raise PlanError(
            expected=f"to know how {name} is drawn afresh",
            got="a parameter whose initializer is not known",
            fix="pass reference=, a function that builds the model",
        )

    def draw(old: Tensor) -> Tensor:
        drawn = graph.fresh(name, tuple(old.shape), seed, reason)
        assert drawn is not None
        return drawn.to(old)

    return draw


def _notices(graph: UnitGraph, surgery: Sequence[Surgery]) -> Iterator[str]:
    if surgery:
        first = surgery[0].freezes[0]
        named = first.removeprefix(f"{surgery[0].module}.")
        yield (
            f"names in the state dict have changed ({first} is now {surgery[0].module}.frozen.{named}); load one into "
            "a new model with rk.restore_(model, state_dict)"
        )
    for operation in surgery:
        if any(_inside(name, operation.module) for name in graph.statistics()):
            told = "outputs are unchanged in evaluation mode, not while training"
            yield f"{operation.module} has running statistics: {told}"
