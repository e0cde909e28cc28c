"""Self-normalized resets: recycle units that are silent for longer than is usual for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from rekindle.methods import ELEMENTS_BEGIN_AGAIN, Card, MethodContext, MethodState, recycler_method
from rekindle.methods.recyclers._units import (
    FLATTENED,
    FRESH_BIASES,
    IN_PLACE,
    RECYCLED,
    ZEROS_WIN,
    device_of,
    not_skipped,
)

CARD = Card(
    title="Self-normalized resets",
    source="Farias and Jozefiak 2024, Self-Normalized Resets for Plasticity in Continual Learning; FIRE: D",
    what="A unit that is silent for longer than is usual for itself is recycled. "
    "A unit fires in a step when its activation is not zero for some sample of the batch. Of each unit the lengths of "
    "its silences (steps between two firings) are counted; when it has been silent for a steps and the share of its "
    "silences of at least that length, P(A >= a), is no more than `threshold`, it is taken for dead. Recycled units "
    f"have {RECYCLED}, and no history.",
    when="When units die and it is not known how long a silence is too long: rare detectors are left alone. For units "
    "that can be zero (ReLU); others (GELU, tanh, SiLU, what a LayerNorm gives) always fire and are never recycled.",
    cost="Activations are looked at in every step; memory is 4 (longest + 2) bytes a unit. Whether a unit is due "
    "is one synchronization with the device in every `period` steps. Measured in benchmarks/.",
    deviations=(
        "Silences are counted in whole steps of the training loop (a batch, or several accumulated), and where the "
        "next layers read the unit; a unit of a residual stream fires if it does for any of them.",
        "Silences longer than `longest` count as that long. A unit that has fired less than `firings` times since its "
        "start cannot be judged by itself: it is recycled after `longest` silent steps.",
        "Nothing of the history is forgotten until the unit is recycled.",
        "Fires means above zero for the authors, and not zero here. For a ReLU that is the same. A leaky unit with a "
        "large negative bias never fires for them and is recycled; here it always fires and is left alone.",
        f"{FRESH_BIASES}; published: zero.",
        IN_PLACE,
        FLATTENED,
        ZEROS_WIN,
        ELEMENTS_BEGIN_AGAIN,
    ),
    example="""
>>> import torch
>>> import rekindle as rk
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
>>> optimizer = torch.optim.Adam(net.parameters())
>>> keeper = rk.Keeper(net, optimizer, "snr:firings=5", example=torch.zeros(1, 8))
>>> for step in range(12):
...     if step == 8:
...         _ = net[0].bias.data[2].fill_(-100.0)  # it fired in every step, and dies
...     optimizer.zero_grad()
...     net(torch.randn(32, 8)).square().mean().backward()
...     optimizer.step(); _ = keeper.step()
>>> keeper.recycled["0"], bool(net[0].bias[2] > -1)
(1, True)
""",
    needs=("example",),
)


@recycler_method(CARD, identity={"skip": ("*",)}, observes=("fired",))
class Snr:
    """Settings of self-normalized resets.

    Args:
        threshold: Largest probability of so long a silence in a dead unit (tau).
        firings: How often a unit must have fired before it is judged by its own history.
        longest: Longest silence that is told from longer ones.
        period: Steps between two judgments.
        skip: Patterns of group names to leave alone.
    """

    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.02
    firings: Annotated[int, Field(ge=1)] = 50
    longest: Annotated[int, Field(ge=1)] = 512
    period: Annotated[int, Field(ge=1)] = 1
    skip: tuple[str, ...] = ()

    def init(self, context: MethodContext) -> MethodState:
        """Return the state of self-normalized resets."""
        return _State(self, context)


class _State(MethodState):
    """Counts `reached[unit, a]`: how many silences reached a steps; those that reached 0 are the firings.

    A silence that grows to a steps is counted there and then, after it was compared with those before it. So a step
    reads and writes one number a unit, and no histogram is ever summed up. The last column takes what is longer than
    `longest`, and is never read.
    """

    def __init__(self, settings: Snr, context: MethodContext) -> None:
        self.settings, self.watch = settings, context.watch
        self.layout = context.watch.layout("fired")
        self.spans = not_skipped(self.layout.units, settings.skip)
        device = device_of(context)
        units, self.columns = self.layout.size if self.spans else 0, settings.longest + 2
        self.reached = torch.zeros(units * self.columns, dtype=torch.int32, device=device)
        self.first = torch.arange(units, device=device) * self.columns
        self.last = self.first + (self.columns - 1)
        self.now = self.first.clone()  # where in `reached` each unit is
        self.one = torch.ones(units, dtype=torch.int32, device=device)
        self.skipped = torch.ones(units, dtype=torch.bool, device=device)
        for span in self.spans.values():
            self.skipped[span] = False

    def watches(self, step: int) -> bool:
        return bool(self.spans)

    @property
    def silence(self) -> Tensor:
        """For how many steps each unit has been silent, `longest` + 1 for longer."""
        return self.now - self.first

    @torch.no_grad()
    def choose(self, step: int) -> Mapping[str, Tensor]:
        if not self.spans:
            return {}
        silent = self.layout.per_unit(self.watch.features("fired"), largest=True) == 0
        self.now = torch.where(silent, torch.minimum(self.now + 1, self.last), self.first)
        found = {} if step % self.settings.period or not silent.any() else self._dead()
        self.reached.index_add_(0, self.now, self.one)
        return found

    def _dead(self) -> dict[str, Tensor]:
        silence = self.silence
        longer = silence > self.settings.longest  # such a silence was counted itself when it was the longest
        as_long = self.reached[self.now - longer.long()] - longer.int()
        firings = self.reached.view(-1, self.columns)[:, 0]
        dead = unusual(silence, as_long, firings, self.settings) & ~self.skipped
        if not dead.any():
            return {}
        return {name: dead[span].nonzero().reshape(-1) for name, span in self.spans.items()}

    def recycled(self, chosen: Mapping[str, Tensor]) -> None:
        table = self.reached.view(-1, self.columns)
        for name, units in chosen.items():
            flat = units + self.spans[name].start
            self.now[flat] = self.first[flat]
            table[flat] = 0

    def state_dict(self) -> dict[str, Any]:
        return {"now": self.now, "reached": self.reached}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.now = state["now"].to(self.now)
        self.reached = state["reached"].to(self.reached)


def unusual(silence: Tensor, as_long: Tensor, firings: Tensor, settings: Snr) -> Tensor:
    """Return a mask of the units whose silence is too long for them.

    Args:
        silence: For how many steps each unit has been silent.
        as_long: How many of its earlier silences were at least as long.
        firings: How many silences it has ended.
        settings: threshold, firings, longest.

    Example:
        >>> a = torch.tensor
        >>> unusual(a([0, 3, 3, 3]), a([99, 2, 3, 0]), a([100, 100, 100, 5]), Snr(threshold=0.02)).tolist()
        [False, True, False, False]
    """
    known = firings >= settings.firings
    rare = (silence > 0) & (as_long <= settings.threshold * firings)
    return torch.where(known, rare, silence >= settings.longest)
