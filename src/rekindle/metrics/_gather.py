"""What is summed up while data streams by: per group, per head, and of the model's answers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from rekindle.graph.calls.model_output import logits_of
from rekindle.graph.modules import submodule
from rekindle.kernels.margins import margin
from rekindle.observe.losses import class_dimension
from rekindle.observe.read_points import ReadPoint
from rekindle.seeds import generator

CHUNK = 2**20  # most numbers that are made float64 at once
MOST = 2**24  # most numbers that a sample of rows holds
MARGINS = 2**16  # most margins that are kept


class Reservoir:
    """A random sample of rows, all alike to be in it, of a stream whose length is not known.

    Every row gets a random key; those with the smallest keys stay. What stays depends on the seed and on the number of
    rows in each offer, not on their values: two networks of one class keep rows of the same samples.
    """

    def __init__(self, keep: int, random: torch.Generator) -> None:
        self.keep, self.random = keep, random
        self.keys = torch.empty(0, dtype=torch.float64)
        self.values: dict[str, Tensor] = {}

    def offer(self, count: int) -> tuple[Tensor, Tensor]:
        """Return which of the next `count` rows are candidates, and their keys."""
        keys = torch.rand(count, generator=self.random, dtype=torch.float64)
        full = len(self.keys) >= self.keep
        numbers = (keys < self.keys.max()).nonzero()[:, 0] if full else torch.arange(count)
        if len(numbers) > self.keep:
            numbers = numbers[keys[numbers].topk(self.keep, largest=False).indices.sort().values]
        return numbers, keys[numbers]

    def take(self, keys: Tensor, values: dict[str, Tensor]) -> None:
        """Take candidates in, and let go what no longer has a place; rows stay in the order in which they came."""
        self.keys = torch.cat([self.keys, keys])
        stay = self.keys.topk(min(self.keep, len(self.keys)), largest=False).indices.sort().values
        self.keys = self.keys[stay]
        joined = {name: torch.cat([self.values[name], v]) if self.values else v for name, v in values.items()}
        self.values = {name: value[stay] for name, value in joined.items()}


class UnitSums:
    """Sums over the samples of one group; what each of its readers is given counts as samples."""

    def __init__(self, name: str, units: int, chosen: Tensor | None, keep: int, seed: int) -> None:
        self.name, self.chosen, self.samples = name, chosen, 0
        self.rows = Reservoir(max(1, min(keep, MOST // units)), generator(seed, name, "feature rows"))
        side = units if chosen is None else len(chosen)
        self.total, self.magnitude, self.zeros = (torch.zeros(units, dtype=torch.float64) for _ in range(3))
        self.moment = torch.zeros(side, side, dtype=torch.float64)

    def add(self, point: ReadPoint, x: Tensor) -> None:
        """Take in what a reader of the group is given."""
        rows = by_sample(point, x)  # [samples, units]
        self.samples += len(rows)
        numbers, keys = self.rows.offer(len(rows))
        self.rows.take(keys, {"rows": _kept(rows, numbers)})
        device = torch.device("cpu") if x.device.type == "mps" else x.device  # mps has no float64
        sums = [torch.zeros_like(t, device=device) for t in (self.total, self.magnitude, self.zeros, self.moment)]
        chosen = None if self.chosen is None else self.chosen.to(device)
        for chunk in rows.split(max(1, CHUNK // rows.shape[1])):
            wide = chunk.to(device).double()
            part = wide if chosen is None else wide[:, chosen]
            sums[0] += wide.sum(0)
            sums[1] += torch.linalg.vector_norm(wide, 1, dim=0)
            sums[2] += (wide == 0).sum(0)
            sums[3].addmm_(part.T, part)
        for old, new in zip((self.total, self.magnitude, self.zeros, self.moment), sums, strict=True):
            old += new.cpu()


def by_sample(point: ReadPoint, x: Tensor) -> Tensor:
    """Return [samples, units]; positions, and what a flatten repeats of a unit, are samples."""
    rows = x.movedim(point.reader.dimension(x), -1).reshape(-1, point.reader.features)
    if point.in_order:
        return rows
    each = rows[:, point.index.to(x.device).T.reshape(-1)]  # repeat after repeat, units together
    return each.reshape(-1, len(point.index))


class HeadSums:
    """A sample of what one head is given, with the labels that go with it."""

    def __init__(self, path: str, tensor: str, model: nn.Module, keep: int, seed: int) -> None:
        module = submodule(model, path)
        self.tensor, self.keep = tensor, keep
        self.spatial = len(module.kernel_size) if isinstance(module, _ConvNd) else 0
        self.random = generator(seed, path, "head rows")
        self.reservoir: Reservoir | None = None
        self.pending: list[tuple[Tensor, Tensor, Tensor]] = []  # numbers in the batch, keys, rows
        self.count, self.labeled = 0, True

    @property
    def seen(self) -> bool:
        """Tell whether the head was called with something."""
        return self.reservoir is not None

    def add(self, x: Tensor) -> None:
        """Take in what the head is given; rows are copied, because what follows may work in place."""
        rows = x.movedim(x.dim() - 1 - self.spatial, -1)
        rows = rows.reshape(-1, rows.shape[-1])
        if self.reservoir is None:
            self.reservoir = Reservoir(max(1, min(self.keep, MOST // rows.shape[1])), self.random)
        numbers, keys = self.reservoir.offer(len(rows))
        self.pending.append((self.count + numbers, keys, _kept(rows, numbers)))
        self.count += len(rows)

    def finish(self, labels: Tensor | None) -> None:
        """Put the batch's labels to its rows, if they are as many, or one for all positions of an image."""
        each = 0 if labels is None else self._positions(len(labels))
        self.labeled = self.labeled and (each > 0 or not self.count)
        for numbers, keys, rows in self.pending:
            assert self.reservoir is not None
            found = labels.cpu()[numbers // each] if each and labels is not None else torch.zeros_like(numbers)
            self.reservoir.take(keys, {"inputs": rows, "labels": found.long()})
        self.pending, self.count = [], 0

    def _positions(self, labels: int) -> int:
        """Return how many rows go with a label, or 0; if called once, a convolution has an image's rows together."""
        if labels == self.count:
            return 1
        together = self.spatial > 0 and len(self.pending) == 1 and labels > 0 and self.count % labels == 0
        return self.count // labels if together else 0

    def taken(self) -> tuple[Tensor, Tensor | None]:
        """Return inputs and labels."""
        assert self.reservoir is not None
        return self.reservoir.values["inputs"], self.reservoir.values["labels"] if self.labeled else None


def _kept(rows: Tensor, numbers: Tensor) -> Tensor:
    return rows[numbers.to(rows.device)].to("cpu", torch.promote_types(rows.dtype, torch.float32))


class OutputSums:
    """The smallest margins of the model's answers."""

    def __init__(self) -> None:
        self.margins: Tensor | None = None
        self.answers, self.wrong, self.why_not = 0, 0, "batches without integer targets"

    def add(self, output: Any, labels: Tensor | None) -> Tensor | None:
        """Take in a batch's answers; return its labels, one a row, where it is clear what they belong to."""
        if labels is None:
            return None
        logits, dimension = logits_of(output), class_dimension(output, labels)
        if logits is None or logits.dim() < 2:
            self.why_not = f"outputs of type {type(output).__name__}"
        elif dimension is None:
            self.why_not = f"outputs {tuple(logits.shape)} for targets {tuple(labels.shape)}"
        else:
            self._keep(logits.movedim(dimension, -1).reshape(-1, logits.shape[dimension]), labels.reshape(-1))
            return labels.reshape(-1)
        return labels if labels.dim() == 1 else None

    def _keep(self, logits: Tensor, labels: Tensor) -> None:
        counted = (labels >= 0) & (labels < logits.shape[1])  # others are to be ignored
        on_cpu = logits.cpu() if logits.device.type == "mps" else logits
        new = margin(on_cpu[counted.to(on_cpu.device)], labels[counted].to(on_cpu.device)).cpu()
        self.answers += len(new)
        self.wrong += int((new < 0).sum())
        joined = new if self.margins is None else torch.cat([self.margins, new])
        self.margins = joined.sort().values[:MARGINS]
