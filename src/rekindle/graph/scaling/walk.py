"""How the sizes of everything in a model hang together: the tape of the trace log once more, with scale exponents.

Positively homogeneous operations pass a factor on, products multiply factors, sums need equal ones, normalizations
forget them, and what is not homogeneous (a gelu, a softmax, an added constant) must be given what it was given before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rekindle.graph.groups import Group, Slot
from rekindle.graph.scaling.constraints import ScaleBlock, ScaleConstraints
from rekindle.graph.scaling.scale_exponents import NEUTRAL, UNCHANGED, Exponents, ScaleExponents, constant
from rekindle.graph.trace_log import TraceLog
from rekindle.graph.value import Value, compact, distinct, shrink

SUMS = {"mean", "sum"}
Curve = tuple[Tensor, str]  # labels of units, "module: operation"


@dataclass
class Walk:
    """The scale exponents of all values met so far."""

    slots: Mapping[str, Sequence[tuple[int, Slot]]]  # of each tensor, with their numbers
    summed: frozenset[int] = frozenset()  # calls whose result is only reduced
    exponents: ScaleExponents = field(default_factory=ScaleExponents)
    curves: list[Curve] = field(default_factory=list)
    parameters: dict[str, Tensor] = field(default_factory=dict)
    _known: dict[int, Tensor] = field(default_factory=dict)

    def field(self, value: Value) -> Tensor:
        """Return the labels of a value, of its shape."""
        if id(value) in self._known:
            return self._known[id(value)]
        if value.is_parameter:
            return self.stored(str(value.param), value.shape)
        zeros = value.constant.read_zeros() if value.constant is not None and not value.buffer else None
        if zeros is not None and zeros.shape == value.shape:
            return shrink(torch.where(zeros, NEUTRAL, UNCHANGED))
        return constant(UNCHANGED, value.shape)

    def stored(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return the labels of a parameter or running statistic: one variable for each block of its elements."""
        if name not in self.parameters:
            blocks = _blocks(self.slots.get(name, ()), tuple(shape))
            variables = torch.tensor([self.exponents.variable() for _ in range(int(blocks.max()) + 1)])
            self.parameters[name] = variables[compact(blocks)].expand(tuple(shape))
        return self.parameters[name]

    def keep(self, result: Any, fields: Any) -> None:
        """Remember the fields of a result, or of a list of results."""
        if isinstance(result, Value):
            found = fields[0] if isinstance(fields, list) else fields
            if not result.opaque or found.shape == result.shape:  # a gap has no shape; what went in is fixed below
                self._known[id(result)] = found.expand(result.shape)
        elif isinstance(result, list):
            for one, its in zip(result, fields if isinstance(fields, list) else [fields], strict=False):
                self.keep(one, its)

    def is_summed(self, call: Any) -> bool:
        """Tell whether the result of a call goes into sums and means alone."""
        return id(call) in self.summed

    def curve(self, values: Iterable[Value], location: object) -> None:
        """Write down whose units pass something that is not positively homogeneous of degree one."""
        for value in values:
            met = (*value.product.left, *value.product.right) if value.product is not None else ()
            if value.data:
                self.curves.append((distinct(*value.unit_labels, *met), str(location)))

    def fix(self, values: Iterable[Value], location: object) -> None:
        """Keep values as they are, because something that is not homogeneous comes next."""
        values = list(values)
        self.curve(values, location)
        for value in values:
            self.exponents.fix(self.field(value))


def homogeneity(
    trace_log: TraceLog, groups: Sequence[Group], rule: Callable[[Walk, Any], Any]
) -> tuple[ScaleConstraints, list[Curve]]:
    """Return how sizes hang together, and what is not homogeneous on the way of which units.

    Args:
        trace_log: What the handlers wrote down, with its tape.
        groups: Units that are treated alike; blocks of tensors follow them.
        rule: What an operation does to scale exponents.
    """
    walk = Walk(_slots(groups), _summed(trace_log))
    leaving = {id(value) for value in trace_log.results}
    for call, result in trace_log.tape:
        walk.keep(result, rule(walk, call))
        for value in result if isinstance(result, list) else [result]:
            if isinstance(value, Value) and value.data and not value.relevant and id(value) not in leaving:
                walk.exponents.fix(walk.field(value))  # no unit axis: what follows is not on the tape
    for value in trace_log.gaps:
        walk.exponents.fix(walk.field(value))
    flat = [walk.field(value).reshape(-1) for value in trace_log.results if value.data or value.relevant]
    ends = [walk.exponents.settle(labels, [0]) for labels in flat if labels.numel()]
    output = int(walk.exponents.tie(*ends)) if ends else UNCHANGED
    return _sizes(walk, walk.exponents.sums[max(output, UNCHANGED)]), walk.curves


def _summed(trace_log: TraceLog) -> frozenset[int]:
    users: dict[int, set[str]] = defaultdict(set)
    for call, _ in trace_log.tape:
        for value in call.values:
            users[id(value)].add(call.op)
    return frozenset(id(call) for call, result in trace_log.tape if users[id(result)] and users[id(result)] <= SUMS)


def _sizes(walk: Walk, output: Exponents) -> ScaleConstraints:
    """Name the variables by tensor and block."""
    variables: dict[str, tuple[ScaleBlock, ...]] = {}
    for name, labels in walk.parameters.items():
        core = compact(labels)
        numbers = core.unique().tolist()
        variables[name] = tuple(
            ScaleBlock(next(iter(walk.exponents.sums[number])), None if len(numbers) == 1 else core == number)
            for number in numbers
        )
    return ScaleConstraints(variables, tuple(walk.exponents.equations), output)


def _slots(groups: Sequence[Group]) -> dict[str, list[tuple[int, Slot]]]:
    """Return all slots by tensor, numbered."""
    found: dict[str, list[tuple[int, Slot]]] = defaultdict(list)
    for number, slot in enumerate(slot for g in groups for slot in (*g.incoming, *g.norms, *g.outgoing)):
        found[slot.tensor].append((number, slot))
    return found


def _blocks(slots: Sequence[tuple[int, Slot]], shape: tuple[int, ...]) -> Tensor:
    """Return for each element of a tensor the number of its block: elements that stand in the same slots."""
    cuts: dict[tuple[tuple[int, ...], tuple[int, ...]], Tensor] = {}
    for number, slot in slots:
        view, dims = slot.where.view, slot.where.dims
        sizes = [size if d in dims else 1 for d, size in enumerate(view)]
        cut = cuts.setdefault((view, dims), torch.zeros(sizes, dtype=torch.long).reshape(-1))
        cut[slot.where.index.reshape(-1)] = number + 1
    blocks = torch.zeros((), dtype=torch.long).expand(shape)
    for (view, dims), cut in cuts.items():
        if bool((cut == cut[0]).all()):
            continue
        sizes = [size if d in dims else 1 for d, size in enumerate(view)]
        part = compact(shrink(cut.reshape(sizes).expand(view).reshape(shape)))
        both = compact(blocks) * (int(part.max()) + 1) + part
        blocks = both.unique(return_inverse=True)[1].reshape(both.shape).expand(shape)
    return blocks
