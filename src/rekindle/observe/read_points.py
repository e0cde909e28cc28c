"""Where the units of a group can be seen: at the input of every module that reads them.

A recurrent layer reads its own units, too: they are seen where they leave it, or inside of it (see `observe.sides`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from rekindle.graph.calls.inputs import as_call
from rekindle.graph.export import at_rest
from rekindle.graph.groups import Group, Slot, owner_of
from rekindle.graph.modules import submodule
from rekindle.observe.sides import INPUT, LAYER, OUTPUT, STATE, attach, is_torchs

Place = tuple[str, str]  # path of a module, side of it
Inputs = Mapping[Place, Sequence[tuple[Tensor, ...]]]


RECURRENT = (nn.RNNBase, nn.RNNCellBase)


@dataclass(frozen=True)
class Reader:
    """A module that is looked at.

    Args:
        module: Its path.
        features: Number of channels or features of what is looked at.
        channels_first: Whether they are in the first dimension after the batch (a convolution) or in the last.
        spatial: Number of dimensions after the channels, of a convolution.
        biased: Whether it has a bias, which can take up what a silenced unit gave on average.
        side: What of it is looked at, see `observe.sides`.
    """

    module: str
    features: int
    channels_first: bool = False
    spatial: int = 0
    biased: bool = False
    side: str = INPUT

    @property
    def place(self) -> Place:
        """Path and side."""
        return self.module, self.side

    def dimension(self, x: Tensor) -> int:
        """Return the dimension of the features."""
        return x.dim() - 1 - self.spatial if self.channels_first else x.dim() - 1

    def fits(self, x: Tensor) -> bool:
        """Tell whether this can be the reader's input."""
        return x.is_floating_point() and x.dim() > self.spatial and x.shape[self.dimension(x)] == self.features


@dataclass(frozen=True, eq=False)
class ReadPoint:
    """Where the units of a group are seen.

    Args:
        group: Name of the group.
        reader: The module.
        index: Long tensor [units, repeat]: which features of the reader's input are a unit's.
        tensors: Outgoing tensors that take in what is seen here; several when they are given the same activation.
    """

    group: str
    reader: Reader
    index: Tensor
    tensors: tuple[str, ...]

    @property
    def in_order(self) -> bool:
        """Whether features are units, one by one."""
        units, repeat = self.index.shape
        return repeat == 1 and units == self.reader.features and torch.equal(self.index[:, 0], torch.arange(units))


def find_read_points(model: nn.Module, groups: Sequence[Group], example: Any) -> tuple[list[ReadPoint], dict[str, str]]:
    """Return where groups can be seen, in order, and the reasons for those that cannot.

    The model is run once, at rest. A group is seen at all its readers or not at all: a unit of a residual stream that
    is silent for one block may well speak to the next.
    """
    wanted = {group.name: [_point(model, group, slot) for slot in group.outgoing] for group in groups}
    places = {point.reader.place for points in wanted.values() for point in points if point}
    inputs = _inputs(model, sorted(places), example)
    found: list[ReadPoint] = []
    unseen: dict[str, str] = {}
    for name, points in wanted.items():
        seen = [point for point in points if point and _is_given(point, inputs)]
        if seen and len(seen) == len(points):
            found += _without_repetition(seen, inputs)
        else:
            unseen[name] = "a weight reads it outside of a layer of its own, so that its activation cannot be seen"
    return found, unseen


def _inputs(model: nn.Module, places: Iterable[Place], example: Any) -> Inputs:
    """Return what modules are given, call by call; held until all is compared, so that no memory is used twice."""
    found: dict[Place, list[tuple[Tensor, ...]]] = {}

    def note(path: str, side: str) -> Any:
        calls = found.setdefault((path, side), [])

        def look(module: nn.Module, args: tuple[Any, ...]) -> None:
            calls.append(tuple(arg.detach() for arg in args if isinstance(arg, Tensor)))

        def look_at(module: nn.Module, take: Callable[[], Tensor | None]) -> None:
            seen = take()
            calls.append(() if seen is None else (seen.detach(),))

        module = submodule(model, path)
        recurrent = isinstance(module, RECURRENT)
        return attach(module, side, look_at) if recurrent else module.register_forward_pre_hook(look)

    handles = [note(*place) for place in places]
    try:
        args, kwargs = as_call(model, example)
        with at_rest(model), torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _is_given(point: ReadPoint, inputs: Inputs) -> bool:
    """Tell whether the reader's one input is the activation: not so in attention between two sequences."""
    calls = inputs.get(point.reader.place, ())
    return bool(calls) and all(
        call and point.reader.fits(call[0]) and len({_identity(x) for x in call}) == 1 for call in calls
    )


def _without_repetition(points: Sequence[ReadPoint], inputs: Inputs) -> list[ReadPoint]:
    """Return points with those joined that are given the same activation: q, k and v, a shortcut beside its block."""
    found: dict[Any, list[ReadPoint]] = {}
    for point in points:
        reader = point.reader
        given = tuple(_identity(call[0]) for call in inputs[reader.place])
        alike = found.setdefault((given, reader.channels_first), [])
        same = next((n for n, other in enumerate(alike) if torch.equal(other.index, point.index)), None)
        if same is None:
            alike.append(point)
        else:
            other = alike[same]
            biased = other.reader.biased or reader.biased
            alike[same] = replace(
                other, tensors=other.tensors + point.tensors, reader=replace(other.reader, biased=biased)
            )
    return [point for alike in found.values() for point in alike]


def _identity(x: Tensor) -> tuple[Any, ...]:
    return (x.data_ptr(), tuple(x.shape), x.stride(), x._version)


def _point(model: nn.Module, group: Group, slot: Slot) -> ReadPoint | None:
    if slot.kind != "weight" or not slot.module:
        return None
    module = submodule(model, slot.module)
    if isinstance(module, RECURRENT):
        return _recurrent_point(module, group, slot)
    if not _reads_its_input(module, slot):
        return None
    where = slot.where
    features = 1
    for dim in where.dims:
        features *= where.view[dim]
    spatial = len(module.kernel_size) if isinstance(module, _ConvNd) else 0
    biased = any(name.endswith("bias") and p.dim() == 1 for name, p in module.named_parameters(recurse=False))
    reader = Reader(slot.module, features, isinstance(module, _ConvNd), spatial, biased)
    return ReadPoint(group.name, reader, where.index, (slot.tensor,))


def _recurrent_point(module: nn.Module, group: Group, slot: Slot) -> ReadPoint | None:
    """Return where a recurrent layer's weight meets what it reads: its input, its own states, those of a layer below.

    Of its own states it is given those of the step before; what leaves it are those and the last ones.
    """
    kind, layer, backward = _parameter(slot.tensor)
    if kind not in ("ih", "hh") or slot.tensor.rpartition(".")[0] != slot.module or not is_torchs(module):
        return None  # the units between a cell and its projection are seen nowhere
    index, features, side = slot.where.index, slot.where.view[slot.where.dims[0]], INPUT
    if not isinstance(module, nn.RNNBase):
        side = STATE if kind == "hh" else INPUT
    elif kind == "hh":
        index, features = index + features * backward, features * (2 if module.bidirectional else 1)
        side = OUTPUT if layer == module.num_layers - 1 else f"{LAYER}{layer}"
    elif layer > 0:
        side = f"{LAYER}{layer - 1}"
    return ReadPoint(group.name, Reader(slot.module, features, side=side), index, (slot.tensor,))


def _parameter(tensor: str) -> tuple[str, int, bool]:
    """Return kind, layer and direction of a recurrent layer's weight by its name."""
    found = re.fullmatch(r"weight_(ih|hh|hr)(?:_l(\d+))?(_reverse)?", tensor.rpartition(".")[2])
    return (found[1], int(found[2] or 0), bool(found[3])) if found else ("", 0, False)


def _reads_its_input(module: nn.Module, slot: Slot) -> bool:
    """Tell whether the weight is applied to what the module is given; in a module that does more nobody knows."""
    own = {name for name, _ in module.named_parameters(recurse=False)}
    if isinstance(module, nn.MultiheadAttention):
        return slot.tensor.rpartition(".")[2] in own  # not its output projection, which reads the mixed values
    if owner_of(slot.tensor) != slot.module and slot.tensor.rpartition(".")[0] != slot.module:
        return False
    known = isinstance(module, (nn.Linear, _ConvNd)) or type(module).__name__ == "Conv1D"
    return known or (not list(module.children()) and sum(p.dim() > 1 for p in module.parameters(recurse=False)) == 1)


@dataclass(eq=False)
class Layout:
    """Where the features of points stand in one flat vector, and how they belong to units.

    Attributes:
        spans: For each point its part of the vector of all features.
        units: For each group its part of the vector of all units.
    """

    points: Sequence[ReadPoint]
    spans: list[slice] = field(init=False)
    units: dict[str, slice] = field(init=False)
    _rows: Tensor = field(init=False)  # [units, most features of a unit], one past the end for none

    def __post_init__(self) -> None:
        """Lay out features point by point, units group by group."""
        by_group: dict[str, list[Tensor]] = {}
        self.spans, self.units, end = [], {}, 0
        for point in self.points:
            size = point.index.numel()
            self.spans.append(slice(end, end + size))
            by_group.setdefault(point.group, []).append(torch.arange(end, end + size).reshape(point.index.shape))
            end += size
        joined = {name: torch.cat(rows, 1) for name, rows in by_group.items()}
        widest = max((rows.shape[1] for rows in joined.values()), default=1)
        padded = [nn.functional.pad(rows, (0, widest - rows.shape[1]), value=end) for rows in joined.values()]
        self._rows = torch.cat(padded) if padded else torch.zeros(0, 1, dtype=torch.long)
        self.features, start = end, 0
        for name, rows in joined.items():
            self.units[name] = slice(start, start + len(rows))
            start += len(rows)
        self.size = start
        self._plain = widest == 1

    def per_unit(self, features: Tensor, *, largest: bool = False) -> Tensor:
        """Return the sum (or the largest) over the features of each unit."""
        if self._plain:
            return features
        rows = nn.functional.pad(features, (0, 1))[self.rows(features.device)]
        return rows.amax(1) if largest else rows.sum(1)

    def rows(self, device: torch.device) -> Tensor:
        """Return the positions of each unit's features, one past the end where a unit has fewer than others."""
        if self._rows.device != device:
            self._rows = self._rows.to(device)
        return self._rows

    def positions(self, units: Tensor) -> Tensor:
        """Return the positions of all features of some units, given by their point among all units."""
        found = self.rows(units.device)[units].reshape(-1)
        return found[found < self.features]
