"""By what each tensor is multiplied, so that weights come close to what is wanted and the function stays in proportion.

Every weight wants its own factor c. The function f becomes exactly C f only if the factors fit each other: at a bias, a
residual addition, a tied tensor, before something that is not homogeneous. The graph holds these conditions as linear
equations between the logarithms of the factors (`UnitGraph.scale_constraints`); of all solutions the one is taken that
is nearest to what is wanted, in the sum over weights of (log factor - wanted log factor)^2. Without joins every weight
gets what it wants, and biases the running product, as in Theorem 1 of Soft Weight Rescaling. The solution is linear in
what is wanted, so that it is prepared once, and used with one small matrix product a tensor ever after.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rekindle.graph.regions import Where, Whole
from rekindle.graph.scaling.constraints import ScaleBlock, ScaleConstraints
from rekindle.graph.unit_graph import UnitGraph

NOTHING = 1e-10  # coefficients below are rounding
Exponents = Mapping[int, float]


@dataclass(frozen=True, eq=False)
class Wish:
    """A weight, or the scale of a normalization, that may want a factor.

    Args:
        name: Name of the weight, or of the scale.
        tensor: The tensor whose factor it is; the gain under weight_norm.
        where: Its elements there.
        shape: Shape of the tensor.
    """

    name: str
    tensor: str
    where: Where
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """How one tensor is multiplied.

    Args:
        blocks: Its blocks.
        powers: The logarithm of each block's factor [blocks] is `powers` [blocks, wishes] @ wanted [wishes].
    """

    blocks: tuple[ScaleBlock, ...]
    powers: Tensor

    def needs(self) -> list[int]:
        """Return the numbers of the wishes that it depends on."""
        return self.powers.abs().amax(0).gt(0).nonzero().reshape(-1).tolist() if self.powers.numel() else []

    def where(self) -> Where:
        """Return the elements that can change at all."""
        moving = self.powers.abs().amax(1).gt(0).tolist() if self.powers.numel() else [False] * len(self.blocks)
        masks = [block.mask for block, moves in zip(self.blocks, moving, strict=True) if moves]
        if all(moving):
            return Whole()
        return Elements(torch.stack(torch.broadcast_tensors(*(m for m in masks if m is not None))).any(0))

    def factor(self, logs: Tensor, like: Tensor) -> Tensor:
        """Return the factor of each element, broadcastable to the tensor, for the logarithm of each block's factor."""
        factors = logs.exp().to(like)
        if len(self.blocks) == 1:
            return factors[0]
        total = torch.zeros((), dtype=like.dtype, device=like.device)
        for block, factor in zip(self.blocks, factors, strict=True):
            assert block.mask is not None
            total = total + block.mask.to(like.device) * factor
        return total


@dataclass(frozen=True, eq=False)
class Elements:
    """The elements of a tensor where a mask, broadcastable to it, is true; as a vector."""

    chosen: Tensor

    def read(self, tensor: Tensor) -> Tensor:
        """Return the elements in order."""
        return tensor[self.mask(tensor)]

    def write(self, tensor: Tensor, part: Tensor) -> Tensor:
        """Return a copy of the tensor with the elements replaced."""
        return tensor.masked_scatter(self.mask(tensor), part)

    def mask(self, tensor: Tensor) -> Tensor:
        """Return the mask in the tensor's shape."""
        return self.chosen.to(tensor.device).expand(tensor.shape)


@dataclass(frozen=True, eq=False)
class Scaling:
    """Factors of all tensors as a linear function of what is wanted.

    Attributes:
        wishes: What may be wanted, in this order.
        parts: Every tensor that the forward pass uses.
        output: The logarithm of the model's constant C is `output` [wishes] @ wanted [wishes].
    """

    wishes: tuple[Wish, ...]
    parts: Mapping[str, Part]
    output: Tensor

    def logs(self, wanted: Tensor) -> dict[str, Tensor]:
        """Return the logarithm of the factor of each block of each tensor."""
        return {name: part.powers.to(wanted) @ wanted for name, part in self.parts.items()}


def wishes_of(graph: UnitGraph) -> tuple[Wish, ...]:
    """Return the weights and the scales of normalization layers: what counts as W in Soft Weight Rescaling, 3.3.

    The slope of a PReLU and other factors are none: only what is neutral at one is a scale.
    """
    found: dict[str, Wish] = {}
    for weight in graph.weights:
        tensor = weight.gain[0] if weight.gain else weight.tensor
        where: Where = Whole() if weight.gain else weight.view
        if not (weight.gain and any(wish.tensor == tensor for wish in found.values())):
            found[weight.name] = Wish(weight.name, tensor, where, graph.parameters[tensor])
    for slot in (slot for group in graph.groups for slot in group.norms):
        one = slot.neutral == 1.0 and getattr(graph.initializers.get(slot.tensor), "value", 1.0) == 1.0
        if slot.kind == "scale" and one and slot.tensor in graph.parameters:
            found.setdefault(slot.tensor, Wish(slot.tensor, slot.tensor, Whole(), graph.parameters[slot.tensor]))
    return tuple(found.values())


def prepare(graph: UnitGraph, wishes: Sequence[Wish], fixed: Collection[str] = ()) -> Scaling:
    """Solve for the factors of all tensors.

    Args:
        graph: A traced graph.
        wishes: What may be wanted, from `wishes_of`.
        fixed: Tensors that keep their values.

    Example:
        >>> from torch import nn
        >>> from rekindle.graph import trace
        >>> graph = trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 4))
        >>> scaling = prepare(graph, wishes_of(graph))
        >>> {name: part.powers.tolist() for name, part in scaling.parts.items()}  # biases: the running product
        {'0.weight': [[1.0, 0.0]], '0.bias': [[1.0, 0.0]], '2.weight': [[0.0, 1.0]], '2.bias': [[1.0, 1.0]]}
    """
    sizes = graph.scale_constraints
    asked = {wish.tensor for wish in wishes}
    wanting = {block.variable for name in asked for block in sizes.blocks.get(name, ())}
    kept = [{block.variable: 1.0} for name in fixed for block in sizes.blocks.get(name, ())]
    bound = eliminate([*kept, *sizes.equations], wanting)
    free = _least_squares(_rows(wishes, sizes), bound, len(wishes))
    powers = _Powers(bound, free, len(wishes))
    parts = {
        name: Part(blocks, torch.stack([powers.of(block.variable) for block in blocks]))
        for name, blocks in sizes.blocks.items()
    }
    return Scaling(tuple(wishes), parts, _rounded(powers.total(sizes.output)))


class _Powers:
    """Variables as sums of wishes, each computed once, from those that it is made of."""

    def __init__(self, bound: Bound, free: Mapping[int, Tensor], wishes: int) -> None:
        self._bound = bound
        self._found = dict(free)
        self._zero = torch.zeros(wishes, dtype=torch.float64)

    def of(self, variable: int) -> Tensor:
        """Return the power [wishes] of a variable."""
        todo = [variable]  # a stack, and no recursion: a chain is as long as the model is deep
        while todo:
            needed = [v for v in self._bound.forms.get(todo[-1], ()) if v not in self._found]
            if needed:
                todo += needed
            else:
                last = todo.pop()
                self._found.setdefault(last, self.total(self._bound.forms.get(last, {})))
        return _rounded(self._found[variable])

    def total(self, form: Exponents) -> Tensor:
        """Return a sum of variables that are known."""
        found = self._zero.clone()
        for variable, power in form.items():
            found += power * (self._found[variable] if variable in self._found else self.of(variable))
        return found


def _rounded(power: Tensor) -> Tensor:
    return torch.where(power.abs() > NOTHING, power, 0.0)


@dataclass(eq=False)
class Bound:
    """Some variables as sums of others, so that all equations hold.

    A sum may contain bound variables again, those of earlier layers: written out, sums would be as long as the model is
    deep. `reduced` writes out as much as is needed.

    Attributes:
        forms: For each bound variable its sum.
        times: When each was bound.
    """

    forms: dict[int, dict[int, float]] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)

    def bind(self, variable: int, form: dict[int, float]) -> None:
        """Bind a variable to a sum."""
        self.times[variable] = len(self.forms)
        self.forms[variable] = form

    def reduced(self, form: Exponents) -> dict[int, float]:
        """Return a sum in free variables.

        What was bound last is written out first, so that what came before it cancels before it is looked at: in a
        residual network the two sides of an addition differ by one block, whatever is in front of it.
        """
        total = {variable: power for variable, power in form.items() if abs(power) > NOTHING}
        todo = [(-self.times[variable], variable) for variable in total if variable in self.times]
        heapq.heapify(todo)
        while todo:
            variable = heapq.heappop(todo)[1]
            power = total.pop(variable, 0.0)
            if abs(power) <= NOTHING:
                continue
            for other, its in self.forms[variable].items():
                if other not in total and other in self.times:
                    heapq.heappush(todo, (-self.times[other], other))
                total[other] = total.get(other, 0.0) + power * its
                if abs(total[other]) <= NOTHING:
                    del total[other]
        return total


def eliminate(equations: Iterable[Exponents], last: Collection[int] = ()) -> Bound:
    """Bind some variables to sums of the others, so that all equations hold.

    Args:
        equations: Sums that are zero.
        last: Variables that stay free where that can be.

    Example:
        >>> eliminate([{0: 1.0, 1: -1.0}, {1: 1.0, 2: 2.0}], last=(1,)).forms
        {0: {1: 1.0}, 2: {1: -0.5}}
    """
    bound = Bound()
    seen: set[int] = set()
    for equation in equations:
        new = max((variable for variable in equation if variable not in seen and variable not in last), default=None)
        seen.update(equation)
        if new is not None and new == max(variable for variable in equation if variable not in last):
            rest, pivot = dict(equation), new  # nothing is made of it yet: the rest may stay as it is
        else:
            rest = bound.reduced(equation)
            if not rest:
                continue
            pivot = min(rest, key=lambda variable: (variable in last, -variable))
        power = rest.pop(pivot)
        bound.bind(pivot, {variable: -other / power for variable, other in rest.items()})
    return bound


def _rows(wishes: Sequence[Wish], sizes: ScaleConstraints) -> list[tuple[int, int, float]]:
    """Return (wish, variable, share of the wish's elements) for each block that a wish touches."""
    rows = []
    for number, wish in enumerate(wishes):
        blocks = sizes.blocks.get(wish.tensor, ())
        if len(blocks) == 1:
            rows.append((number, blocks[0].variable, 1.0))
            continue
        mine = wish.where.mask(torch.empty(wish.shape))
        for block in blocks:
            assert block.mask is not None
            share = int((block.mask & mine).count_nonzero()) / max(int(mine.count_nonzero()), 1)
            rows += [(number, block.variable, share)] if share else []
    return rows


def _least_squares(rows: Sequence[tuple[int, int, float]], bound: Bound, wishes: int) -> dict[int, Tensor]:
    """Return each free variable as a sum of wishes: rows that share no variable are solved apart."""
    forms = [bound.reduced({variable: 1.0}) for _, variable, _ in rows]
    solved: dict[int, Tensor] = {}
    for members in _connected(forms):
        columns = {v: at for at, v in enumerate(sorted({v for row in members for v in forms[row]}))}
        matrix = torch.zeros(len(members), len(columns), dtype=torch.float64)
        wanted = torch.zeros(len(members), wishes, dtype=torch.float64)
        for at, row in enumerate(members):
            number, _, share = rows[row]
            for variable, power in forms[row].items():
                matrix[at, columns[variable]] = share**0.5 * power
            wanted[at, number] = share**0.5
        if len(members) == 1 and len(columns) == 1:
            solution = wanted / matrix
        else:
            solution = torch.linalg.lstsq(matrix, wanted, driver="gelsd").solution
        solved.update(zip(columns, solution, strict=True))
    return solved


def _connected(forms: Sequence[Exponents]) -> list[list[int]]:
    """Return the numbers of the forms in sets that share no variable; empty forms are in none."""
    sets: dict[int, list[int]] = {}
    of: dict[int, int] = {}  # variable -> set
    for row, form in enumerate(forms):
        near = sorted({of[variable] for variable in form if variable in of})
        if not form:
            continue
        home = near[0] if near else row
        joined = [member for each in near for member in sets.pop(each)] + [row]
        sets[home] = joined
        of.update({variable: home for member in joined for variable in forms[member]})
    return [sorted(members) for members in sets.values()]
