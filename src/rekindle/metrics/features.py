"""Features: what one pass over the data tells about every group of units, and about what the head is given.

Everything is summed up while the data streams by, so that memory does not grow with it: per group a few numbers a unit,
a matrix of second moments and a bounded sample of rows. The moments are float64, because small singular values are read
off them as roots. One pass serves all metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from rekindle.errors import PlanError
from rekindle.graph import UnitGraph
from rekindle.graph.unwrap import bare
from rekindle.metrics._gather import HeadSums, OutputSums, UnitSums
from rekindle.observe.batches import inputs_of, labels_of
from rekindle.observe.features import pass_over, resting
from rekindle.observe.read_points import Place, ReadPoint, find_read_points
from rekindle.observe.sides import INPUT
from rekindle.observe.visit import batches_of, device_of
from rekindle.seeds import generator, global_seed

UNITS = 4096  # most units of a matrix of second moments
ROWS = 512  # most rows kept of a group
HEAD_ROWS = 2048  # most rows kept of what a head is given
WITHOUT_ACTIVATION = {"output": "the model's output", "score": "queries and keys, which have no activation"}


@dataclass(frozen=True, eq=False)
class GroupFeatures:
    """What was seen of a group, where its readers take it in: after norm and nonlinearity.

    Positions of a convolution and tokens of a sequence count as samples. So does what each reader is given, where there
    are several, as those of a residual stream.

    Attributes:
        samples: How many.
        mean: Mean activation [units].
        magnitude: Mean |activation| [units].
        zeros: Share of exact zeros [units].
        moment: A^T A / samples [units, units], of the units in `chosen` where there are too many.
        chosen: Units in `moment`, or None for all.
        rows: Activations of a bounded number of samples [rows, units], chosen at random.
    """

    samples: int
    mean: Tensor
    magnitude: Tensor
    zeros: Tensor
    moment: Tensor
    chosen: Tensor | None
    rows: Tensor

    @property
    def units(self) -> int:
        """Number of units."""
        return len(self.mean)

    @property
    def possible(self) -> int:
        """Largest rank that the features could have."""
        return min(len(self.moment), self.samples)

    @cached_property
    def spectrum(self) -> Tensor:
        """Singular values of A / sqrt(samples), largest first; what is rounding only is zero."""
        values = torch.linalg.eigvalsh(self.moment).flip(0).clamp_min(0)
        noise = values[:1] * torch.finfo(values.dtype).eps * len(values)
        return torch.where(values > noise, values, 0).sqrt()


@dataclass(frozen=True, eq=False)
class HeadFeatures:
    """What a head was given, of a bounded number of samples chosen at random.

    Attributes:
        tensor: Name of the head's weight.
        inputs: [samples, features].
        labels: [samples], or None where they do not go with the inputs.
    """

    tensor: str
    inputs: Tensor
    labels: Tensor | None


@dataclass(frozen=True, eq=False)
class Features:
    """What one pass saw.

    Attributes:
        groups: By name, in order of execution.
        unseen: Groups that could not be seen, with the reason.
        heads: By module.
        margins: The smallest softmax margins in order, or None; see `metrics.margin`.
        answers: How many samples had a margin.
        wrong: How many of them were answered wrongly.
        no_margins: Why there are none.
        batches: Number of batches.
        seed: Seed of the choice of units and rows.

    Example:
        >>> from rekindle.graph import trace
        >>> net, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), torch.eye(2)
        >>> features = gather_features(net, trace(net, x), [(x, torch.tensor([0, 1]))])
        >>> features.groups["0"].samples, features.heads["2"].inputs.shape, features.answers
        (2, torch.Size([2, 3]), 2)
    """

    groups: Mapping[str, GroupFeatures]
    unseen: Mapping[str, str]
    heads: Mapping[str, HeadFeatures]
    margins: Tensor | None
    answers: int
    wrong: int
    no_margins: str
    batches: int
    seed: int = 0

    def check_seen(self, metric: str) -> None:
        """Refuse to read a metric of groups where none was seen.

        Raises:
            PlanError: None was.
        """
        if not self.groups:
            why = next((reason for reason in self.unseen.values() if reason not in WITHOUT_ACTIVATION.values()), "")
            raise PlanError(
                expected=f"at least one group of units whose activation can be seen, for {metric}",
                got=f"none of {len(self.unseen)} groups" + (f": {why}" if why else ""),
                fix="pass an example so that the model is traced, and let modules apply the weights (nn.Linear, not "
                "F.linear on a parameter)",
            )


def gather_features(
    model: nn.Module,
    graph: UnitGraph,
    data: Iterable[Any],
    *,
    seed: int = 0,
    replaced: Mapping[str, Tensor] | None = None,
) -> Features:
    """Run the model once over the data, in evaluation mode, and return what was seen; the model is left as it was.

    Args:
        model: The model.
        graph: Its traced graph.
        data: Batches: (inputs, targets), dicts of the model's arguments, or tensors. Gone through once; the first batch
            is also run alone, to see where each group can be seen.
        seed: Seed of the choice of units and rows. The same seed, graph and batches choose the same ones.
        replaced: Values to use instead of the model's own, by name: the features of another network of the same class.
    """
    model = bare(model)
    with global_seed(seed, "data", "features"):  # a DataLoader draws its order
        stream = batches_of(data, device_of(model.parameters()), "features")
        first = next(stream)
        with resting(model, seed, "places"):
            sums = _Sums.of(model, graph, inputs_of(first), seed)
        listeners = {place: sums.listener(place) for place in sums.places}
        batches = pass_over(model, chain([first], stream), listeners, sums.finish, seed=seed, replaced=replaced)
    groups = {name: _group(unit) for name, unit in sums.groups.items() if unit.samples}
    heads = {path: HeadFeatures(head.tensor, *head.taken()) for path, head in sums.heads.items() if head.seen}
    outputs = sums.outputs
    answers = (outputs.margins, outputs.answers, outputs.wrong, outputs.why_not)
    return Features(groups, sums.unseen, heads, *answers, batches, seed)


def _group(sums: UnitSums) -> GroupFeatures:
    if not bool(torch.isfinite(sums.moment).all()):
        raise PlanError(
            expected=f"finite activations of {sums.name}",
            got="NaN or infinite values",
            fix="look for inputs that are not finite, or go back to a checkpoint from before the divergence",
        )
    return GroupFeatures(
        sums.samples,
        sums.total / sums.samples,
        sums.magnitude / sums.samples,
        sums.zeros / sums.samples,
        sums.moment / sums.samples,
        sums.chosen,
        sums.rows.values["rows"],
    )


@dataclass(eq=False)
class _Sums:
    """Everything that is summed up on the way, by group and by head."""

    points: list[ReadPoint]
    groups: dict[str, UnitSums]
    heads: dict[str, HeadSums]
    unseen: dict[str, str]
    outputs: OutputSums = field(default_factory=OutputSums)

    @classmethod
    def of(cls, model: nn.Module, graph: UnitGraph, example: Any, seed: int) -> _Sums:
        with_activation = [group for group in graph.groups if group.kind not in WITHOUT_ACTIVATION]
        points, unseen = find_read_points(model, with_activation, example)
        unseen |= {g.name: WITHOUT_ACTIVATION[g.kind] for g in graph.groups if g.kind in WITHOUT_ACTIVATION}
        sizes = {point.group: len(point.index) for point in points}
        groups = {n: UnitSums(n, size, _some_units(n, size, seed), ROWS, seed) for n, size in sizes.items()}
        slots = [slot for group in graph.groups if group.kind == "output" for slot in group.incoming]
        heads = {s.module: s.tensor for s in slots if s.kind == "weight" and s.module}
        sums = {path: HeadSums(path, tensor, model, HEAD_ROWS, seed) for path, tensor in heads.items()}
        return cls(points, groups, sums, unseen)

    @property
    def places(self) -> list[Place]:
        heads = [(path, INPUT) for path in self.heads]
        return list(dict.fromkeys([*(point.reader.place for point in self.points), *heads]))

    def listener(self, place: Place) -> Any:
        points = [point for point in self.points if point.reader.place == place]
        head = self.heads.get(place[0]) if place[1] == INPUT else None

        def listen(x: Tensor) -> None:
            for point in points:
                self.groups[point.group].add(point, x)
            if head is not None:
                head.add(x)

        return listen

    def finish(self, batch: Any, output: Any) -> None:
        labels = self.outputs.add(output, labels_of(batch))
        for head in self.heads.values():
            head.finish(labels)


def _some_units(name: str, units: int, seed: int) -> Tensor | None:
    """Return the units whose second moments are kept, or None for all."""
    if units <= UNITS:
        return None
    return torch.randperm(units, generator=generator(seed, name, "features"))[:UNITS].sort().values
