"""Streams of tokens, from which windows are drawn at random places: what a language model is trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from rekindle.errors import RekindleError
from rekindle.training.examples import Change

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Tokens:
    """One stream of tokens, or several that are mixed.

    Args:
        streams: Token ids by the name of the stream, each of one dimension; a `numpy.memmap` is read where it is drawn.
        context: Tokens of a window. What follows each of them is its label.
        shares: Part of the windows that comes from each stream; all from the first if left out.
        windows: Most windows of a stream that are evaluated, at even distances.
        device: Where batches are put.

    Example:
        >>> stream = Tokens({"text": np.arange(10, dtype=np.uint16)}, context=4)
        >>> inputs, labels = stream.pair(torch.tensor([5]))
        >>> inputs.tolist(), labels.tolist()
        ([[5, 6, 7, 8]], [[6, 7, 8, 9]])
    """

    streams: Mapping[str, np.ndarray]
    context: int
    shares: tuple[float, ...] = ()
    windows: int = 512
    device: torch.device | str = field(default="cpu")

    def __post_init__(self) -> None:
        for name, stream in self.streams.items():
            if len(stream) <= self.context:
                raise RekindleError(
                    expected=f"at least {self.context + 1} tokens in {name!r}: a window of {self.context} and the next",
                    got=f"{len(stream)}",
                    fix="take a longer text or a shorter context",
                )

    def __len__(self) -> int:
        """Return the number of places at which a window can begin."""
        return sum(self._places)

    @property
    def _places(self) -> list[int]:
        return [len(stream) - self.context for stream in self.streams.values()]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input as a network sees it."""
        return (self.context,)

    @property
    def parts(self) -> dict[str, Tokens]:
        """The streams by name, each on its own."""
        return {name: replace(self, streams={name: stream}, shares=()) for name, stream in self.streams.items()}

    def to(self, device: torch.device | str) -> Tokens:
        """Return tokens whose batches are put on a device."""
        return replace(self, device=device)

    def draw(self, steps: int, size: int, random: torch.Generator) -> Tensor:
        """Return the places of windows for some steps, `[steps, size]`: streams by their shares, places at random."""
        places = torch.tensor(self._places)
        shares = torch.tensor(self.shares or (1.0,) + (0.0,) * (len(places) - 1), dtype=torch.float64)
        which = torch.multinomial(shares, steps * size, replacement=True, generator=random)
        within = (torch.rand(steps * size, dtype=torch.float64, generator=random) * places[which]).long()
        return (within + (places.cumsum(0) - places)[which]).view(steps, size)

    def pair(self, which: Tensor | slice, augment: Change | None = None) -> Batch:
        """Return windows and what follows each of their tokens, both int64 `[n, context]`."""
        places = torch.arange(len(self))[which] if isinstance(which, slice) else which.cpu()
        text = torch.from_numpy(np.stack([self._window(int(place)) for place in places]).astype(np.int64))
        if torch.device(self.device).type == "cuda":
            text = text.pin_memory().to(self.device, non_blocking=True)
        text = text.to(self.device)
        return text[:, :-1], text[:, 1:]

    def batch(self, which: Tensor | slice, augment: Change | None = None) -> Tensor:
        """Return windows without their labels."""
        return self.pair(which, augment)[0]

    def _window(self, place: int) -> np.ndarray:
        for stream, places in zip(self.streams.values(), self._places, strict=True):
            if place < places:
                return stream[place : place + self.context + 1]
            place -= places
        raise IndexError(place)

    def in_order(self, size: int) -> Iterator[Batch]:
        """Yield the windows that are evaluated, in batches: beside each other, or fewer at even distances."""
        begin = 0
        for count in self._places:
            beside = torch.arange(begin, begin + count, self.context)
            chosen = beside[:: -(-len(beside) // self.windows)]
            for part in chosen.split(size):
                yield self.pair(part)
            begin += count
