"""Continual backpropagation: a small, steady share of the least useful units is recycled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import (
    ELEMENTS_BEGIN_AGAIN,
    Card,
    Means,
    MethodContext,
    MethodState,
    ReadPoint,
    UnitGraph,
    UnitIndex,
    by_feature,
    magnitude,
    recycler_method,
)
from rekindle.methods.recyclers._units import FRESH_BIASES, ZEROS_WIN, device_of, not_skipped

CARD = Card(
    title="Continual backpropagation",
    source="Dohare et al. 2024, Loss of plasticity in deep continual learning, Nature 632; FIRE: D",
    what="After every step the share `rate` of the units of each layer is due for recycling, those of lowest utility. "
    "The utility of a unit is an average, decaying by `decay` and corrected for its start, of its mean |activation| "
    "times the sum of its outgoing |weights|: u <- decay u + (1 - decay) |h| sum|w|. Only units older than `maturity` "
    "steps count, and what is less than a unit adds up from step to step. Recycled units have fresh incoming weights, "
    "neutral normalization, silent outgoing weights and cleared moments; the bias of a layer that read them takes up "
    "what they gave on average.",
    when="For streams of data without known boundaries. Not for short training: a network of 100 units a layer loses "
    "one in a hundred steps with the default rate.",
    cost="Activations are looked at and outgoing weights summed up in every step: a few percent of a step of "
    "convolutional networks. Measured in benchmarks/.",
    deviations=(
        "Activations are those after norm and nonlinearity, where the next layers read them; published code scores "
        "before both, so that dead units look alive.",
        "The average of utilities decays, as the paper writes it; published code sums up magnitudes without decay.",
        "Which layer reads a unit is known from the trace; published code takes the next one in order, and so pairs "
        "layers across a residual sum. A unit with several readers (a residual stream, positions after a flatten) has "
        "the sum of its utilities at all of them, each with the activation that this reader sees.",
        "After a flatten all columns of a channel are silenced; published code zeroes one of four.",
        "Means are taken up by biases; a reader without a bias has none to give them to. Around a padded convolution's "
        "borders this is too much, as in published code.",
        f"{FRESH_BIASES}; published: zero.",
        ZEROS_WIN,
        ELEMENTS_BEGIN_AGAIN,
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
>>> optimizer = torch.optim.Adam(net.parameters())
>>> keeper = rk.Keeper(net, optimizer, "cbp:rate=0.1,maturity=2", example=torch.zeros(1, 8))
>>> for _ in range(10):
...     optimizer.zero_grad()
...     net(torch.randn(32, 8)).square().mean().backward()
...     optimizer.step(); _ = keeper.step()
>>> keeper.recycled["0"]  # 0.1 of up to 6 units a step, after the first two
4
""",
    needs=("example",),
    aliases=("continual_backprop",),
)


@recycler_method(CARD, identity={"rate": 0.0}, observes=("magnitude", "mean"))
class Cbp:
    """Settings of continual backpropagation.

    Args:
        rate: Share of a layer's mature units that is recycled per step.
        maturity: Steps for which a unit is safe after it was recycled, and all are at the start.
        decay: Of the averages of utility and of activation.
        skip: Patterns of group names to leave alone.
    """

    rate: Annotated[float, Field(ge=0, le=1)] = 1e-4
    maturity: Annotated[int, Field(ge=0)] = 100
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    skip: tuple[str, ...] = ()

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of continual backpropagation."""
        return _State(self, context)


class _State(MethodState):
    """All units in flat vectors, so that a step is a handful of operations however many layers there are.

    How many units are due follows from ages, which are known without looking at a tensor: nothing is synchronized with
    the device until a unit is due.
    """

    def __init__(self, settings: Cbp, context: MethodContext) -> None:
        self.settings, self.watch = settings, context.watch
        self.layout, self.mean_layout = context.watch.layout("magnitude"), context.watch.layout("mean")
        self.readers = _outgoing(context.graph, context.tensors, self.layout.points)
        spans = not_skipped(self.layout.units, settings.skip)
        self.sizes = {name: span.stop - span.start for name, span in spans.items()}
        device = device_of(context)
        self.utility = torch.zeros(self.layout.features, device=device)
        self.mean = torch.zeros(self.mean_layout.features, device=device)
        self.age = torch.zeros(self.layout.size, device=device)
        self.due = dict.fromkeys(self.sizes, 0.0)
        self.mature = dict.fromkeys(self.sizes, 0)
        self.young = [(0, name, size) for name, size in self.sizes.items()]  # at which step, where, how many were new
        self.step = 0
        self.given: dict[str, dict[str, Tensor]] = {}

    def watches(self, step: int) -> bool:
        return bool(self.sizes) and self.settings.rate > 0

    def choose(self, step: int) -> Mapping[str, Tensor]:
        if not self.watches(step):
            return {}
        self._follow()
        numbers = self._how_many()
        if not numbers:
            return {}
        chosen = self._lowest(numbers)
        self.given = self._means()
        return chosen

    def means(self) -> Means:
        """Return the mean of what readers saw of each unit, up to the last choice."""
        return self.given

    @torch.no_grad()
    def _follow(self) -> None:
        new = 1 - self.settings.decay
        sizes = torch.cat([reader.sums() for reader in self.readers])
        self.utility.lerp_((self.watch.features("magnitude") * sizes).to(self.utility), new)
        if len(self.mean):
            self.mean.lerp_(self.watch.features("mean").to(self.mean), new)
        self.age.add_(1)
        self.step += 1

    def _how_many(self) -> dict[str, int]:
        """Return how many units of each group are due; what is left of one stays for later."""
        while self.young and self.step - self.young[0][0] > self.settings.maturity:
            _, name, count = self.young.pop(0)
            self.mature[name] += count
        numbers = {}
        for name, count in self.mature.items():
            self.due[name] += self.settings.rate * count
            if self.due[name] >= 1 and count:
                numbers[name] = min(int(self.due[name]), count)
                self.due[name] -= int(self.due[name])
        return numbers

    def _corrected(self, average: Tensor, age: Tensor) -> Tensor:
        return average / (1 - self.settings.decay ** age.double()).clamp_min(torch.finfo(torch.float64).tiny)

    def _lowest(self, numbers: Mapping[str, int]) -> dict[str, Tensor]:
        utility = self._corrected(self.layout.per_unit(self.utility), self.age)
        utility = utility.masked_fill(self.age <= self.settings.maturity, float("inf"))
        return {
            name: utility[self.layout.units[name]].sort(stable=True).indices[:number].sort().values
            for name, number in numbers.items()
        }

    def _means(self) -> dict[str, dict[str, Tensor]]:
        found: dict[str, dict[str, Tensor]] = {}
        for point, span in zip(self.mean_layout.points, self.mean_layout.spans, strict=True):
            age = self.age[self.layout.units[point.group]]
            mean = self._corrected(self.mean[span].reshape(point.index.shape), age[:, None])
            found.setdefault(point.group, {}).update(dict.fromkeys(point.tensors, mean))
        return found

    def recycled(self, chosen: Mapping[str, Tensor]) -> None:
        for name, units in chosen.items():
            flat = units + self.layout.units[name].start
            self.age[flat] = 0
            self.utility[self.layout.positions(flat)] = 0
            if name in self.mean_layout.units:
                self.mean[self.mean_layout.positions(units + self.mean_layout.units[name].start)] = 0
            self.mature[name] -= len(units)
            self.young.append((self.step, name, len(units)))

    def state_dict(self) -> dict[str, Any]:
        names = ("utility", "mean", "age", "due", "mature", "young", "step")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("utility", "mean", "age"):
            setattr(self, name, state[name].to(getattr(self, name)))
        self.due, self.mature = dict(state["due"]), dict(state["mature"])
        self.young = [(step, name, count) for step, name, count in state["young"]]
        self.step = state["step"]


@dataclass(frozen=True, eq=False)
class _Outgoing:
    """The outgoing weights at one point, and how to sum up |w| for each feature that is seen there."""

    weights: tuple[tuple[Tensor, Tensor | None, int], ...]  # stored tensor, gain of weight_norm, its dimension
    regions: tuple[UnitIndex, ...]
    indices: tuple[Tensor | None, ...]  # which of each weight's features are the units', if not all of them in order

    def sums(self) -> Tensor:
        found: Tensor | None = None
        for (stored, gain, dim), where, index in zip(self.weights, self.regions, self.indices, strict=True):
            weight = stored.detach() if gain is None else torch._weight_norm(stored.detach(), gain.detach(), dim)
            size = _magnitude(weight.reshape(where.view), where.dims)
            size = size if index is None else size[index]
            found = size if found is None else found + size
        assert found is not None
        return found


def _magnitude(weight: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return the sum of |w| for each position along some dimensions, jointly."""
    if len(dims) == 1:
        return magnitude(by_feature(weight, dims[0]))
    others = [d for d in range(weight.dim()) if d not in dims]
    return torch.linalg.vector_norm(weight, 1, dim=others).reshape(-1)


def _outgoing(graph: UnitGraph, tensors: Mapping[str, Tensor], points: Sequence[ReadPoint]) -> list[_Outgoing]:
    gains = {direction: (tensors[gain], dim) for gain, (direction, dim) in graph.gains.items() if gain in tensors}
    found = []
    for point in points:
        slots = {slot.tensor: slot.where for slot in graph.group(point.group).outgoing}
        found.append(
            _Outgoing(
                tuple((tensors[name], *gains.get(name, (None, 0))) for name in point.tensors),
                tuple(slots[name] for name in point.tensors),
                tuple(_index(slots[name], tensors[name].device) for name in point.tensors),
            )
        )
    return found


def _index(where: UnitIndex, device: torch.device) -> Tensor | None:
    """Return the positions of units along a weight's input; None where they are all of it, in order."""
    index, size = where.index.reshape(-1), math.prod(where.view[d] for d in where.dims)
    return None if torch.equal(index, torch.arange(size)) else index.to(device)
