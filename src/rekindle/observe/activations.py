"""Activations of units, seen by hooks where their readers take them in: after norm and nonlinearity.

A hook only sums up what was asked for, per channel or feature, in float32; nothing of the batch is kept. Passes without
gradients (evaluation) are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rekindle.errors import PlanError
from rekindle.graph.groups import Group
from rekindle.graph.own_run import is_own_run, watching
from rekindle.kernels import per_feature
from rekindle.observe.distributed import processes, summed
from rekindle.observe.hidden_hooks import keep_out_of_copies, let_into_copies
from rekindle.observe.read_points import Layout, Place, Reader, find_read_points
from rekindle.observe.sides import attach

Quantity = Literal["magnitude", "mean", "fired"]
MEASURES = {"magnitude": per_feature.magnitude, "mean": per_feature.total, "fired": per_feature.largest}


class Watch:
    """Sees the activations of chosen groups while the user's own loop trains.

    Means are seen only at readers that have a bias, which is where they are of use; the others everywhere.

    Attributes:
        points: Where units are seen, group by group; a residual stream at each of its readers.
        unseen: Groups that cannot be seen, with the reason.
        active: Whether the coming passes are counted; a hook that is not active returns at once.
    """

    def __init__(self, model: nn.Module, groups: Sequence[Group], quantities: Iterable[str], example: Any) -> None:
        """Find the points by running the model once on the example; hooks stay until `close`.

        Args:
            model: The live model.
            groups: What to see.
            quantities: Any of "magnitude", "mean", "fired".
            example: Input of the model.
        """
        self.quantities: tuple[str, ...] = tuple(dict.fromkeys(quantities))
        self.points, self.unseen = find_read_points(model, groups, example)
        self.active = True
        self._layouts = {
            quantity: Layout([point for point in self.points if quantity != "mean" or point.reader.biased])
            for quantity in MEASURES
        }
        self._start = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        self._sums: dict[tuple[Place, str], Tensor] = {}
        self._counts: dict[Place, int] = {}
        self._gathers: dict[tuple[int, torch.device], Tensor | None] = {}
        self._last_shares: dict[str, tuple[tuple[float, ...], Tensor]] = {}
        self._modules = {path: model.get_submodule(path) for path, _ in self._readers()}
        self._handles: list[Any] = []
        self.open()

    def open(self) -> None:
        """Put the hooks in place, again after `close`."""
        self.close()
        for (path, side), (reader, wanted) in self._readers().items():
            self._handles.append(attach(self._modules[path], side, self._look(reader, wanted), watching))
            keep_out_of_copies(self._modules[path])

    def _readers(self) -> dict[Place, tuple[Reader, list[str]]]:
        """Return each place once, with the reader there and the quantities that are wanted."""
        found: dict[Place, tuple[Reader, list[str]]] = {}
        for quantity in self.quantities:
            for point in self._layouts[quantity].points:
                _, wanted = found.setdefault(point.reader.place, (point.reader, []))
                if quantity not in wanted:
                    wanted.append(quantity)
        return found

    def _look(self, reader: Reader, wanted: Sequence[str]) -> Any:
        own = self._modules[reader.module]

        def look(module: nn.Module, take: Any) -> None:
            if module is not own or is_own_run():  # a copy that was made by other ways; a trace, an audit
                return
            if self.active and torch.is_grad_enabled() and (x := take()) is not None:
                self._add(reader, x.detach(), wanted)

        return look

    @torch.no_grad()
    def _add(self, reader: Reader, x: Tensor, wanted: Sequence[str]) -> None:
        parts = per_feature.by_feature(x, reader.dimension(x))
        for quantity in wanted:
            value = MEASURES[quantity](parts)
            key = (reader.place, quantity)
            old = self._sums.get(key)
            if old is None:
                self._sums[key] = value
            else:
                self._sums[key] = torch.maximum(old, value) if quantity == "fired" else old + value
        self._counts[reader.place] = self._counts.get(reader.place, 0) + x.numel() // reader.features

    def layout(self, quantity: Quantity) -> Layout:
        """Return where each unit stands in `features(quantity)`."""
        return self._layouts[quantity]

    @torch.no_grad()
    def features(self, quantity: Quantity) -> Tensor:
        """Return a quantity for all features of all points, flat, since the last `clear`, over all processes.

        A mean over all samples and positions, or for "fired" the largest |activation|. What was not passed has zero.

        Raises:
            PlanError: Nothing passed the hooks.
        """
        sums, counts = self._totals(quantity)
        if not sums:
            return torch.zeros(0, device=self._start.device)
        flat = torch.cat(sums)
        return flat if quantity == "fired" else flat.mul_(self._shares(quantity, tuple(counts), flat))

    @torch.no_grad()
    def seen(self, quantity: Quantity) -> dict[str, Tensor]:
        """Return a quantity per unit by group, since the last `clear`, over all processes: a mean, or the largest |a|.

        Groups that nothing passed through are left out. A unit with several points has the mean over them.

        Raises:
            PlanError: Nothing passed the hooks.
        """
        sums, counts = self._totals(quantity)
        found: dict[str, list[Tensor]] = {}
        for point, total, count in zip(self._layouts[quantity].points, sums, counts, strict=True):
            if count:
                value = total.reshape(point.index.shape)
                found.setdefault(point.group, []).append(
                    value.amax(1) if quantity == "fired" else value.mean(1) / count
                )
        return {
            name: torch.stack(values).amax(0) if quantity == "fired" else torch.stack(values).mean(0)
            for name, values in found.items()
        }

    def _shares(self, quantity: Quantity, counts: tuple[float, ...], like: Tensor) -> Tensor:
        """Return 1/count for every feature; batches are mostly of one size, so that the last ones are kept."""
        known = self._last_shares.get(quantity)
        if known is None or known[0] != counts or known[1].device != like.device:
            sizes = torch.tensor([point.index.numel() for point in self._layouts[quantity].points])
            shares = torch.tensor(counts, dtype=like.dtype).clamp_min(1).reciprocal().repeat_interleave(sizes)
            known = self._last_shares[quantity] = (counts, shares.to(like.device))
        return known[1]

    def _totals(self, quantity: Quantity) -> tuple[list[Tensor], list[float]]:
        """Return for each point the sums of its features [units * repeat], and how many samples went into them."""
        points = self._layouts[quantity].points
        if self.points and not self._counts:
            raise PlanError(
                expected="a forward pass with gradients since the last step, through the model that the Keeper watches",
                got="none",
                fix="call keeper.step() once after each optimizer.step(), train the model that the Keeper was given, "
                "and create the Keeper before the first call of a compiled model",
            )
        sums = [self._of_point(number, quantity) for number in range(len(points))]
        counts = [float(self._counts.get(point.reader.place, 0)) for point in points]
        if processes() == 1 or not points:
            return sums, counts
        every = torch.cat([*sums, torch.tensor(counts).to(sums[0])])
        parts = summed(every, largest=quantity == "fired").split([*(len(each) for each in sums), len(counts)])
        return list(parts[:-1]), parts[-1].tolist()

    def _of_point(self, number: int, quantity: Quantity) -> Tensor:
        point = self._layouts[quantity].points[number]
        total = self._sums.get((point.reader.place, quantity))
        if total is None:
            return self._start.new_zeros(point.index.numel(), dtype=torch.float32)
        key = (id(point), total.device)
        if key not in self._gathers:
            self._gathers[key] = None if point.in_order else point.index.reshape(-1).to(total.device)
        gather = self._gathers[key]
        return total if gather is None else total[gather]

    def clear(self) -> None:
        """Forget what was seen."""
        self._sums.clear()
        self._counts.clear()

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for module in self._modules.values():
            let_into_copies(module)
