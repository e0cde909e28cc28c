"""Rescale: weights back to the norm that they had at the start, with the function kept up to one constant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from rekindle.graph.scaling.solve import Elements, Part, Scaling, Wish, prepare, wishes_of
from rekindle.methods import (
    Card,
    Edit,
    Edits,
    Evidence,
    PlanError,
    Skip,
    UnitGraph,
    matches,
    one_shot_method,
    tensors_of,
)

CARD = Card(
    title="Weight rescaling",
    source="Soft Weight Rescaling: 3.2 (Definition 1, Theorem 1, Fig. 1), 3.3, A; "
    "The Impact of Reinitialization on Generalization in Convolutional Neural Networks: B, 'Rescaling'",
    what="Brings every weight back to the norm that it had at the start. W_l <- c_l W_l, c_l = |W_l, initial|/|W_l|; "
    "or a part of the way: with strength s, c_l = (s |W_l, initial| + (1-s) |W_l|)/|W_l|. "
    "With proportional=True biases get the running product, b_l <- c_1 ... c_l b_l, so that the new function is "
    "C f(x), C > 0: the same decisions, the same accuracy. Scales and shifts of normalization layers count as W and b, "
    "running statistics follow. With proportional=False biases stay, and the function changes.",
    when="When weights have grown and learning has slowed down with them, and what was learned shall stay: nothing is "
    "forgotten. Outputs shrink with C, so a softmax becomes less sure until training goes on. Not against dormant "
    "units or a low rank: a common factor changes neither.",
    cost="One pass over the parameters for the norms, one for the product; and a small linear problem in the number of "
    "weights. On a state dict every tensor reads the weights that its factor depends on.",
    deviations=(
        "Any traced graph, not only a chain: the conditions under which factors fit each other (biases, residual "
        "additions, concatenations, shared and tied tensors) are linear equations in the logarithms of the factors; of "
        "all solutions the one nearest to the wanted factors is taken, by least squares over the weights. In a chain "
        "every weight has exactly its initial norm; where writers of one residual stream ask for different factors "
        "they share their geometric mean.",
        "Parts of a fused or concatenated weight have factors of their own where the graph asks for it.",
        "What enters something that is not positively homogeneous (gelu, sigmoid, a softmax over scores, a constant "
        "that is added) keeps its size, so that the function is scaled by one constant on every model; the weights "
        "before it cannot reach their norms, and the record says which are fixed. The paper speaks of homogeneous "
        "networks only.",
        "Biases before a normalization get the running product that makes the normalization undo it, also there "
        "(Algorithm 1 gives them their own c_l, which is right only if what comes in is not scaled). It undoes it up "
        "to its eps.",
        "Without reference= the initial norm is the one to expect from the layer's initializer, sqrt(number of "
        "elements) times its standard deviation.",
        "Embeddings are weights. Under weight_norm the gain is scaled, and the direction left alone.",
        "A weight that is zero asks for nothing; one that starts at zero is not brought there.",
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
>>> start = {name: tensor.clone() for name, tensor in net.state_dict().items()}
>>> x = torch.randn(5, 8)
>>> _ = net[0].weight.data.mul_(3.0), net[2].weight.data.mul_(2.0)
>>> before = net(x)
>>> record = rk.apply_("rescale", net, example=x, reference=start)
>>> torch.allclose(net[0].weight, start["0.weight"]), torch.allclose(net(x), before / 6, atol=1e-6)
(True, True)
""",
    needs=("example",),
)


@dataclass(frozen=True)
class Aim:
    """Where the norm of a weight goes: to `target`, or `strength` of the way.

    Example:
        >>> Aim(target=1.0, strength=0.5).factor(3.0) * 3.0
        2.0
    """

    target: float
    strength: float

    def factor(self, norm: float) -> float:
        """Return c_l; what is zero, or not finite (and refused when it is edited), asks for nothing."""
        return self.strength * self.target / norm + (1 - self.strength) if 0 < norm < math.inf else 1.0


@one_shot_method(CARD, identity={"skip": ("*",)})
class Rescale:
    """Settings of rescaling.

    Args:
        strength: How far each weight's norm goes back to the initial one: 1 all the way, 0 not at all.
        proportional: Scale biases too, so that the function is only scaled; otherwise each weight for itself.
        skip: Patterns of tensor names that keep their values; with `proportional` the others are fitted around them.
    """

    strength: Annotated[float, Field(gt=0, le=1)] = 1.0
    proportional: bool = True
    skip: tuple[str, ...] = ()

    def plan(self, graph: UnitGraph, evidence: Evidence, seed: int) -> Edits:
        """Return an edit for each tensor that is scaled, and a skip with the reason for each weight that is not."""
        if self.proportional and not graph.traced:
            raise PlanError(
                expected="example= for rescale, to see how the sizes of layers hang together",
                got="no example",
                fix="pass example= with an input of your model, or proportional=False to scale each weight for itself",
            )
        wishes, targets, skips = [], [], []
        for wish in wishes_of(graph):
            kept = self._reason_to_keep(wish, evidence)
            target = None if kept else initial_norm(graph, evidence, wish, seed)
            reason = kept or _reason_to_skip(target)
            if reason:
                skips.append(Skip(wish.name, reason))
            else:
                wishes.append(wish)
                targets.append(float(target or 0.0))
        aims = [Aim(target, self.strength) for target in targets]
        planned = self._together(graph, evidence, wishes, aims) if self.proportional else _apart(graph, wishes, aims)
        edited = {edit.tensor for edit in planned.edits}
        tensor_of = {wish.name: wish.tensor for wish in wishes_of(graph)}
        return planned + Edits(skips=tuple(skip for skip in skips if tensor_of[skip.tensor] not in edited))

    def _reason_to_keep(self, wish: Wish, evidence: Evidence) -> str:
        if matches(wish.tensor, self.skip):
            return "named in skip"
        if wish.tensor in evidence.frozen:
            return "frozen; the others are fitted around it" if self.proportional else "frozen"
        return ""

    def _together(self, graph: UnitGraph, evidence: Evidence, wishes: Sequence[Wish], aims: Sequence[Aim]) -> Edits:
        fixed = [n for n in graph.scale_constraints.blocks if matches(n, self.skip) or n in evidence.frozen]
        scaling = prepare(graph, wishes, fixed)
        now = tensors_of(evidence.model) if evidence.model is not None else None
        if now and any(now[wish.tensor].is_meta for wish in wishes):
            now = None  # no values yet
        known = [_log_factor(now, wish, aim) for wish, aim in zip(wishes, aims, strict=True)] if now else None
        edits = [
            _edit(name, part, scaling, aims, known, graph.parameters.get(name))
            for name, part in scaling.parts.items()
            if part.needs()
        ]
        left = set(graph.parameters) - {edit.tensor for edit in edits} - {wish.tensor for wish in wishes_of(graph)}
        left |= {wish.tensor for wish in wishes if not scaling.parts[wish.tensor].needs()}
        skips = [
            Skip(name, "named in skip" if matches(name, self.skip) else _why(graph, name))
            for name in graph.parameters
            if name in left
        ]
        return Edits(tuple(edits), tuple(skips), _notices(graph) if edits else ())


def _reason_to_skip(target: float | None) -> str:
    if target is None:
        return "its initial norm is not known; pass reference= (the initial weights, or a function that builds it)"
    return "" if target > 0 else "its initial norm is zero"


def initial_norm(graph: UnitGraph, evidence: Evidence, wish: Wish, seed: int) -> float | None:
    """Return the norm of a weight at the start: of the reference, or as its initializer lets expect, or None."""
    if evidence.reference is not None:
        start = evidence.initial(wish.tensor, wish.shape, "rescale")
        return _norm(wish.where.read(start))
    tensor = graph.gains[wish.tensor][0] if wish.tensor in graph.gains else wish.tensor
    initializer, shape = graph.initializers.get(tensor), graph.parameters[tensor]
    if initializer is None:
        return None
    value = getattr(initializer, "value", getattr(initializer, "std", None))
    if value is None:  # a module's own initializer: one draw stands for all
        drawn = graph.fresh(wish.tensor, wish.shape, seed, "rescale")
        return None if drawn is None else _norm(wish.where.read(drawn))
    counted = torch.ones(shape)
    if getattr(initializer, "zero_row", None) is not None:
        counted[initializer.zero_row] = 0.0  # type: ignore[attr-defined]
    part = counted if wish.tensor in graph.gains else wish.where.read(counted)
    return abs(float(value)) * math.sqrt(float(part.sum(dtype=torch.float64)))


def _norm(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) if values.numel() else 0.0


def _edit(
    name: str,
    part: Part,
    scaling: Scaling,
    aims: Sequence[Aim],
    known: Sequence[float] | None,
    shape: tuple[int, ...] | None,
) -> Edit:
    """Return the edit of one tensor.

    Its factor depends on the norms of other weights; where they are not known yet (a state dict, tensors that are read
    from a file) the edit reads them.
    """
    needs, where = part.needs(), part.where()
    reads = tuple(dict.fromkeys(scaling.wishes[n].tensor for n in needs)) if known is None else ()
    powers = part.powers[:, needs]

    def op(old: Tensor, *others: Tensor) -> Tensor:
        given = dict(zip(reads, others, strict=True))
        wanted = [_log_factor(given, scaling.wishes[n], aims[n]) if known is None else known[n] for n in needs]
        factor = part.factor(powers @ torch.tensor(wanted, dtype=torch.float64), old)
        if isinstance(where, Elements):
            factor = where.read(factor.expand(shape or where.chosen.shape))
        return old * factor

    return Edit(name, op, "rescale", where, reads)


def _log_factor(given: Mapping[str, Tensor], wish: Wish, aim: Aim) -> float:
    return math.log(aim.factor(_norm(wish.where.read(given[wish.tensor].detach()))))


def _apart(graph: UnitGraph, wishes: Sequence[Wish], aims: Sequence[Aim]) -> Edits:
    """Scale each weight by its own factor, and nothing else (Fig. 1, left)."""

    def to(aim: Aim) -> Callable[[Tensor], Tensor]:
        return lambda old: old * aim.factor(_norm(old))

    edits = [Edit(w.tensor, to(aim), "rescale", w.where) for w, aim in zip(wishes, aims, strict=True)]
    blind = "without example= the scales of normalization layers are not told from other parameters, and left alone"
    return Edits(tuple(edits), notices=() if graph.traced or not edits else (blind,))


def _why(graph: UnitGraph, tensor: str) -> str:
    """Say what keeps a tensor from being scaled."""
    if tensor not in graph.scale_constraints.blocks:
        return "not used in the forward pass of this example"
    if any(tensor == direction for direction, _ in graph.gains.values()):
        return "a direction under weight_norm: its gain is scaled"
    for group in graph.groups:
        places = graph.non_homogeneous.get(group.name)
        if places and any(slot.tensor == tensor for slot in (*group.incoming, *group.norms, *group.outgoing)):
            return f"its factor is fixed at one: units of {group.name} enter {places[0]}, not homogeneous"
    return "its factor is fixed at one: what it writes is joined with what is not scaled, or used twice"


def _notices(graph: UnitGraph) -> tuple[str, ...]:
    found = [(name, places[0]) for name, places in graph.non_homogeneous.items() if places]
    if not found:
        return ()
    first, place = found[0]
    return (
        f"{len(found)} of {len(graph.groups)} unit groups pass something that is not positively homogeneous (first: "
        f"{first}, {place}); what enters it keeps its size, and the weights around it do not "
        "reach their initial norms",
    )
