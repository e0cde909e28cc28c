"""How a difference between variants of a model's tensors spreads over the tape of a call, and where it ends.

Only what differs is computed again, so that the work is as large as the part of the model that a group is in. Where all
variants give the same result, everything behind is as in the call itself. What is silent in all variants alike (the
keys that a query meets) is looked up when something that differs meets it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rekindle.graph.proof.contractions import Side, sides
from rekindle.graph.proof.tape import Node, Tape, Unfollowable


class Broken(Exception):
    """The model gives no numbers any more when weights are silent."""


@dataclass(frozen=True, eq=False)
class Read:
    """A weight in whose result a difference of its other operand is seen.

    Args:
        node: The operation.
        side: The operand that differs.
        variants: What it is in each variant.
    """

    node: Node
    side: Side
    variants: tuple[Tensor, ...]


@dataclass(frozen=True)
class Ends:
    """Where a difference ends although it goes on: what cannot be made silent, and what cannot be tried behind it.

    Args:
        weights: Values on the tape; whatever meets one of them ends there.
        own_products: Whether products end in which both operands differ.
    """

    weights: frozenset[int] = frozenset()
    own_products: bool = False

    def at(self, node: Node, differing: Mapping[int, tuple[Tensor, ...]]) -> set[int]:
        """Return the operands whose difference ends in an operation."""
        if not self.weights.isdisjoint(node.inputs):
            return {value for value in node.inputs if value in differing and value not in self.weights}
        factors = {side.value for side in sides(node)} if self.own_products else set()
        return factors if factors and factors <= differing.keys() else set()


NOWHERE = Ends()


class Spread:
    """The values that differ between variants of some tensors.

    Args:
        tape: The call.
        variants: Replaced tensors by name, one mapping for each variant; the same names in all.
        tolerance: Relative change that still counts as none.
        looked_up: The same, for tables where rows of them are looked up: an embedding that is tied to the output layer
            is written there and silent here.
        ends: Where differences end although they go on.

    Attributes:
        differing: What differs so far: for each value what it is in each variant.
        ended: Whether a difference has met one of the ends.
    """

    def __init__(
        self,
        tape: Tape,
        variants: Sequence[Mapping[str, Tensor]],
        tolerance: float,
        looked_up: Sequence[Mapping[str, Tensor]] = (),
        ends: Ends = NOWHERE,
    ) -> None:
        self.tape, self.tolerance, self.count = tape, tolerance, len(variants)
        self.ends, self.ended = ends, False
        self.differing: dict[int, tuple[Tensor, ...]] = {}
        self._settled: dict[int, Tensor] = {}  # values that are the same in all variants
        for name in variants[0]:
            value = tape.leaves[name]
            tensors = tuple(variant[name] for variant in variants)
            if self._differ(tensors):
                self.differing[value] = tensors
            else:
                self._settled[value] = tensors[0]
        names = looked_up[0] if looked_up else ()
        self._looked_up = {tape.leaves[name]: tuple(variant[name] for variant in looked_up) for name in names}

    def reads(self) -> Iterator[Read]:
        """Follow the difference; yield each weight that sees it in its other operand, in order."""
        started = [(value, index) for value in (*self.differing, *self._looked_up) for index in self.tape.users[value]]
        waiting = [index for value, index in started if self._varied(self.tape.nodes[index], value)]
        heapq.heapify(waiting)
        last = -1
        while waiting:
            index = heapq.heappop(waiting)
            if index != last:
                yield from self._follow(self.tape.nodes[index], waiting)
            last = index

    def outputs(self) -> float:
        """Return by how much what leaves the model differs."""
        found = [self.differing[value] for value in self.tape.outputs if value in self.differing]
        return max((change(tensors[0], other) for tensors in found for other in tensors[1:]), default=0.0)

    def _follow(self, node: Node, waiting: list[int]) -> Iterator[Read]:
        fixed = self.ends.at(node, self.differing)
        self.ended |= bool(fixed)
        for side in sides(node):
            if side.value not in fixed and self._is_weight_for(side):
                if self._is_seen(node, side.value):
                    yield Read(node, side, self.differing[side.value])
                else:
                    fixed.add(side.value)
        if any(self._varied(node, value) and value not in fixed for value in node.inputs):
            self._keep(node, self._variants(node, fixed), waiting)
        else:
            self._settle(node)

    def _varied(self, node: Node, value: int) -> tuple[Tensor, ...]:
        """Return what an operand is in each variant; nothing where it is the same in all."""
        if node.op == "embedding" and value in self._looked_up:
            return self._looked_up[value]
        return self.differing.get(value, ())

    def _is_weight_for(self, side: Side) -> bool:
        """Tell whether an operand differs and meets a weight: something that does not depend on the model's input.

        Weights are also computed from weights. There, one that differs in both operands is normalized by itself, and
        what is multiplied by a constant is not read by a parameter.
        """
        tape, other = self.tape, side.other
        if side.value not in self.differing or tape.data[other]:
            return False
        return tape.data[side.value] or (tape.learned[other] and other not in self.differing)

    def _is_seen(self, node: Node, value: int) -> bool:
        """Tell whether the difference of one operand alone is seen in the result."""
        others = {other for other in node.inputs if other in self.differing and other != value}
        return any(map(self._differ, zip(*self._variants(node, others, at=-1), strict=True)))

    def _variants(self, node: Node, fixed: set[int], at: int = 0) -> list[list[Tensor]]:
        """Run an operation in each variant, with some operands as they are in one of them."""

        def reader(variant: int) -> Callable[[int], Tensor]:
            free = self._read_by_weights(node)

            def read(value: int) -> Tensor:
                varied = self._varied(node, value)
                if varied:
                    return varied[at if value in fixed else variant]
                return self.tape.values[value] if value in free else self.still(value)

            return read

        return [self.tape.run(node, reader(variant)) for variant in range(self.count)]

    def _keep(self, node: Node, results: list[list[Tensor]], waiting: list[int]) -> None:
        for value, tensors in zip(node.outputs, zip(*results, strict=True), strict=True):
            self._must_be_a_number(value, tensors[0])
            if self._differ(tensors):
                self.differing[value] = tensors
                for index in self.tape.users[value]:
                    heapq.heappush(waiting, index)
            else:
                self._settled[value] = tensors[0]

    def _settle(self, node: Node) -> None:
        for value in node.outputs:
            self._settled[value] = self.tape.values[value]

    def still(self, value: int) -> Tensor:
        """Return a value that is the same in all variants: as in the call, or silent where its weights are.

        What a weight reads is as in the call: silence is not carried from one layer to the next.
        """
        todo = [value]
        while todo:
            made = self.tape.maker[todo[-1]]
            if todo[-1] in self._settled or made is None:
                self._settled.setdefault(todo[-1], self.tape.values[todo[-1]])
                todo.pop()
                continue
            node = self.tape.nodes[made]
            free = self._read_by_weights(node)
            missing = [v for v in node.inputs if v not in free and v not in self._settled]
            if missing:
                todo += missing
            else:
                self._compute(node, free)
        return self._settled[value]

    def _compute(self, node: Node, free: set[int]) -> None:
        values, settled = self.tape.values, self._settled
        if all(settled[value] is values[value] for value in node.inputs if value not in free):
            self._settle(node)
            return
        results = self.tape.run(node, lambda value: values[value] if value in free else settled[value])
        for value, tensor in zip(node.outputs, results, strict=True):
            self._must_be_a_number(value, tensor)
            settled[value] = tensor

    def _must_be_a_number(self, value: int, tensor: Tensor) -> None:
        if _is_nan(tensor) and not _is_nan(self.tape.values[value]):
            raise Broken

    def _read_by_weights(self, node: Node) -> set[int]:
        """Return the operands that depend on the model's input and meet a weight.

        A weight that differs and is computed may be the query that a learned latent makes, and meets silent keys.
        """
        tape = self.tape
        return {
            side.value
            for side in sides(node)
            if tape.data[side.value]
            and not tape.data[side.other]
            and (tape.plain[side.other] or side.other not in self.differing)
        }

    def _differ(self, tensors: tuple[Tensor, ...]) -> bool:
        first = tensors[0]
        return any(other is not first and not change(first, other) <= self.tolerance for other in tensors[1:])


def change(before: Tensor, after: Tensor) -> float:
    """Return the largest change of a tensor, relative to the largest element that changes (masks have huge ones).

    Raises:
        Unfollowable: The shapes are not the same.
    """
    if before.shape != after.shape:
        raise Unfollowable("shapes depend on the units")
    if torch.equal(before, after):
        return 0.0
    if not (before.is_floating_point() or before.is_complex()):
        return float("inf")
    same = (before == after) | (before.isnan() & after.isnan())
    gap = (after - before).abs().masked_fill(same, 0).nan_to_num(nan=float("inf"))
    size = before.abs().masked_fill(same | ~before.isfinite(), 0)
    return float(gap.max()) / (float(size.max()) + 1e-3)


def _is_nan(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and bool(tensor.isnan().any())
