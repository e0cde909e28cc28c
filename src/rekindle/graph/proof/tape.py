"""Every operation of one live call of a model, so that parts of it can be run again with other values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree


class Unfollowable(Exception):
    """What was computed cannot be computed again from the tape; the text says where."""


@dataclass(frozen=True)
class At:
    """Stands for a value in the arguments of an operation."""

    value: int


@dataclass(frozen=True, eq=False)
class Node:
    """One operation.

    Args:
        index: Its place on the tape.
        target: The ATen operation, or a function of tensors.
        args: Its arguments, with `At` in place of tensors.
        kwargs: Its arguments by name.
        inputs: The values among its arguments.
        outputs: The values that it makes: what it has written into, then what it returns.
        written: The values that it writes into.
        scalar: What it returned if that is no tensor: Python has seen it.
        random: Whether it drew random numbers.
    """

    index: int
    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    written: tuple[int, ...] = ()
    scalar: Any = None
    random: bool = False

    @property
    def op(self) -> str:
        """Name of the operation, without overload."""
        return str(getattr(getattr(self.target, "overloadpacket", self.target), "__name__", self.target))

    @property
    def draws_for_shape(self) -> bool:
        """Whether it draws random numbers for which only the shape of its operand matters."""
        return self.random and (self.op.endswith("_like") or len(self.inputs) == len(self.written) == 1)


@dataclass(eq=False)
class Tape:
    """The operations of a call, in order, and every value as it was.

    Attributes:
        nodes: The operations.
        values: Every tensor: leaves and results.
        maker: For each value the node that makes it; None for leaves.
        users: For each value the nodes that use it.
        data: For each value whether it depends on what the model was called with.
        learned: For each value whether it depends on a parameter.
        plain: For each value whether it is a leaf or a view of one.
        leaves: Parameters and buffers by name.
        outputs: What the call returned.
        evaluations: How many operations were run again so far.
    """

    nodes: list[Node] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    maker: list[int | None] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)
    data: list[bool] = field(default_factory=list)
    learned: list[bool] = field(default_factory=list)
    plain: list[bool] = field(default_factory=list)
    leaves: dict[str, int] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    evaluations: int = 0

    def add_value(self, tensor: Tensor, maker: int | None, *, data: bool, learned: bool) -> int:
        """Add a value and return its number."""
        self.values.append(tensor)
        self.maker.append(maker)
        self.users.append([])
        self.data.append(data)
        self.learned.append(learned)
        node = None if maker is None else self.nodes[maker]
        self.plain.append(node is None or (getattr(node.target, "is_view", False) and self.plain[node.inputs[0]]))
        return len(self.values) - 1

    def run(self, node: Node, read: Callable[[int], Tensor]) -> list[Tensor]:
        """Run one operation again.

        Args:
            node: The operation.
            read: Gives the tensor for each of its inputs.

        Raises:
            Unfollowable: It cannot be repeated, or Python has seen another result of it.
        """
        if node.random:
            if node.inputs and not node.draws_for_shape:
                raise Unfollowable(f"aten.{node.op} draws random numbers that depend on the units")
            return [self.values[value] for value in node.outputs]
        self.evaluations += 1
        try:
            results, scalar = apply(node, {value: read(value) for value in node.inputs})
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise Unfollowable(f"aten.{node.op} does not run with other values: {error}") from error
        if len(results) != len(node.outputs) or scalar != node.scalar:
            raise Unfollowable(f"what aten.{node.op} gives decides how the model goes on")
        return results

    def replay(self, leaves: Mapping[str, Tensor]) -> list[Tensor]:
        """Run everything again with other values for leaves, and return what the call would."""
        now = list(self.values)
        for name, tensor in leaves.items():
            if name in self.leaves:
                now[self.leaves[name]] = tensor
        for node in self.nodes:
            for value, tensor in zip(node.outputs, self.run(node, now.__getitem__), strict=True):
                now[value] = tensor
        return [now[value] for value in self.outputs]

    def names_behind(self, value: int) -> list[str]:
        """Return the parameters and buffers that a value is computed from."""
        names = {number: name for name, number in self.leaves.items()}
        todo, seen = [value], {value}
        while todo:
            made = self.maker[todo.pop()]
            new = [v for v in self.nodes[made].inputs if v not in seen] if made is not None else []
            todo += new
            seen.update(new)
        return [names[number] for number in sorted(seen) if number in names]


def apply(node: Node, given: Mapping[int, Tensor]) -> tuple[list[Tensor], Any]:
    """Run an operation as a function; return the tensors that it makes and, if there are none, what it returns."""
    own = {value: given[value].clone() if value in node.written else given[value] for value in node.inputs}
    args, kwargs = pytree.tree_map(
        lambda item: own[item.value] if isinstance(item, At) else item, (node.args, node.kwargs)
    )
    result = node.target(*args, **kwargs)
    written = [own[value] for value in node.written]
    made = [t for t in tensors_in(result) if not any(t is w for w in written)]
    return written + made, None if written or made else result


def tensors_in(item: Any) -> list[Tensor]:
    """Return the tensors in a nested structure."""
    return [leaf for leaf in pytree.tree_leaves(item) if isinstance(leaf, Tensor)]
