"""Small models that branch on data, and the unit groups that may be found in them, written by hand."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tests.graph.expected_notation import G, w, wb


class Mlp(nn.Module):
    """A hidden layer, or a residual block around it."""

    def __init__(self, width: int, hidden: int, residual: bool = False) -> None:
        super().__init__()
        self.up, self.down, self.residual = nn.Linear(width, hidden), nn.Linear(hidden, width), residual

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(torch.relu(self.up(x)))
        return x + y if self.residual else y


class IfInTheMiddle(nn.Module):
    """A block with an `if` between a stem of two layers and a head of two."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.this, self.other = Mlp(6, 7), Mlp(6, 8)
            self.scale = nn.Parameter(torch.ones(6))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return self.this(x) * self.scale
            return self.other(x)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.block = nn.Linear(4, 5), nn.Linear(5, 6), self.Block()
        self.third, self.head = nn.Linear(6, 9), nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(torch.relu(self.third(self.block(x))))


class ItemGate(nn.Module):
    """A layer that is used as often as `.item()` says; the rest of the network has units that never meet it."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            if x.abs().mean().item() > 0.1:
                x = x + self.layer(x)
            return x

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.into, self.gated = nn.Linear(4, 7), nn.Linear(7, 6), self.Gated()
        self.beside, self.join = nn.Linear(4, 8), nn.Linear(8, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        gated = self.gated(self.into(torch.relu(self.inner(x))))
        return self.head(torch.relu(gated) + self.join(torch.tanh(self.beside(x))))


class LoopOverLengths(nn.Module):
    """A step that is repeated as often as the longest sequence asks for."""

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = Mlp(5, 9)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            for _ in range(int(lengths.max())):
                x = torch.tanh(self.step(x))
            return x

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.hidden, self.steps = nn.Embedding(11, 4), nn.Linear(4, 5), self.Steps()
        self.wide, self.head = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.steps(self.hidden(self.embed(tokens)).mean(1), lengths)
        return self.head(torch.relu(self.wide(x)))


class HandWrittenExperts(nn.Module):
    """Two layers of a mixture of experts, with a loop over the tokens that chose each."""

    class Mixture(nn.Module):
        def __init__(self, experts: int, hidden: int) -> None:
            super().__init__()
            self.router = nn.Linear(6, experts, bias=False)
            self.experts = nn.ModuleList(Mlp(6, hidden) for _ in range(experts))

        def forward(self, x: Tensor) -> Tensor:
            score, top = self.router(x - x.mean(0)).softmax(-1).max(-1)  # centered: each expert gets some
            out = torch.zeros_like(x)
            for e in range(len(self.experts)):
                chosen = (top == e).nonzero().squeeze(-1)
                if len(chosen):
                    out[chosen] = self.experts[e](x[chosen]) * score[chosen, None]
            return out

    def __init__(self) -> None:
        super().__init__()
        self.embed = Mlp(6, 10)
        self.mixtures = nn.ModuleList([self.Mixture(2, 7), self.Mixture(2, 8)])
        self.tail = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for mixture in self.mixtures:
            x = x + mixture(x)
        return self.tail(x)


class RootBranch(nn.Module):
    """The model's own forward stops early; its blocks are residual, one kind written as a class, one as Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.blocks = nn.ModuleList([Mlp(6, 7, residual=True), Mlp(6, 8, residual=True)])
        self.more = nn.ModuleList([nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6))])
        self.out_scale = nn.Parameter(torch.ones(3))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
            if x.norm() > 1e6:
                break
        for block in self.more:
            x = x + block(x)
        return self.head(x) * self.out_scale


# Models whose other branch gets at what is inside of a part that this branch only calls: nothing in there is known.


class Opened(nn.Module):
    """The parts that the models below open."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Mlp(6, 7)
        self.net = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 6))
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 6)) for _ in range(2))

    def half(self, x: Tensor) -> Tensor:
        return self.block.up(x)[:, :6]


class ByWeight(Opened):
    def forward(self, x):
        return self.block(x) if x.sum() > 0 else x @ self.block.up.weight[:6]


class ByMethod(Opened):
    def forward(self, x):
        return self.block(x) if x.sum() > 0 else self.half(x)


def half_of(model, x):
    return model.block.up(x)[:, :6]


class ByFunction(Opened):
    def forward(self, x):
        return self.block(x) if x.sum() > 0 else half_of(self, x)


class ByString(Opened):
    def forward(self, x):
        return self.block(x) if x.sum() > 0 else getattr(self.block, "up")(x)[:, :6]  # noqa: B009


class ByParameters(Opened):
    def forward(self, x):
        return self.block(x) if x.sum() > 0 else x @ list(self.parameters())[0][:6]


class ByIndex(Opened):
    def forward(self, x):
        return self.net(x) if x.sum() > 0 else self.net[0](x)[:, :6]


class BySlice(Opened):
    def forward(self, x):
        return self.net(x) if x.sum() > 0 else self.net[:2](x)[:, :6]


class ByLoop(Opened):
    def forward(self, x):
        if x.sum() > 0:
            return self.net(x)
        for layer in self.net:
            return layer(x)[:, :6]


class ByLocalName(Opened):
    def forward(self, x):
        net = self.net
        return net(x) if x.sum() > 0 else net[0](x)[:, :6]


class ByNestedLoop(Opened):
    def forward(self, x):
        for net in self.nets:
            if x.sum() > -1e6:
                x = net(x)
            else:
                for layer in net:
                    return layer(x)[:, :6]
        return x


class ByTwoIndices(Opened):
    def forward(self, x):
        for net in self.nets:
            x = net(x)
        return x if x.sum() > -1e6 else self.nets[0][0](x)[:, :6]


class ByUnpacking(Opened):
    def forward(self, x):
        first, second = self.nets
        return second(first(x)) if x.sum() > -1e6 else first[0](x)[:, :6]


OPENED = [ByWeight, ByMethod, ByFunction, ByString, ByParameters, ByIndex, BySlice, ByLoop]
OPENED += [ByLocalName, ByNestedLoop, ByTwoIndices, ByUnpacking]


# Models that only call their parts, in different ways of writing it.


class OnlyCalls(Opened):
    def forward(self, x):
        return self.block(x) if x.sum() > 0 else self.block(-x).view(-1, 6)


class CallsByIndex(Opened):
    def forward(self, x):
        for n in range(len(self.nets)):
            x = self.nets[n](x)
            if x.norm() > 1e6:
                return x
        return x


class CallsByEnumerating(Opened):
    def forward(self, x):
        x = x.to(next(self.parameters()).dtype)
        for n, net in enumerate(self.nets):
            x = net(x)
            if x.norm() > 1e6 and n > 1:
                return x
        return x


class CallsByZip(Opened):
    def forward(self, x):
        for scale, net in zip((1.0, 2.0), self.nets, strict=True):
            x = scale * net(x)
            if x.norm() > 1e6:
                return x
        return x


CALLED = {
    OnlyCalls: ["block.up"],
    **dict.fromkeys([CallsByIndex, CallsByEnumerating, CallsByZip], ["nets.0.0", "nets.1.0"]),
}


class Case(NamedTuple):
    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    groups: list[G]
    left_out: set[str]  # modules
    stops_at: str  # a piece of the line


def _floats(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)) + 0.1


CASES = {
    "if_in_the_middle": Case(
        IfInTheMiddle,
        lambda: _floats(3, 4),
        [
            G(5, wb("first"), w("second")),
            G(7, wb("block.this.up"), w("block.this.down")),  # the other branch was not run: nothing is known of it
            G(9, wb("third"), w("head")),
            G(3, wb("head"), kind="output"),
        ],
        {"block"},
        "if x.sum() > 0",
    ),
    "item_gate": Case(
        ItemGate,
        lambda: _floats(3, 4),
        [
            G(7, wb("inner"), w("into")),
            G(8, wb("beside"), w("join")),
            G(6, wb("join"), w("head")),  # joined by what the gate returns, which has writers unknown, not readers
            G(2, wb("head"), kind="output"),
        ],
        {"gated"},
        ".item() > 0.1",
    ),
    "loop_over_lengths": Case(
        LoopOverLengths,
        lambda: (torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([3, 2])),
        [
            G(4, w("embed"), w("hidden")),
            G(9, wb("steps.step.up"), w("steps.step.down")),
            G(6, wb("wide"), w("head")),
            G(3, wb("head"), kind="output"),
        ],
        {"steps"},
        "range(int(lengths.max()))",
    ),
    "hand_written_experts": Case(
        HandWrittenExperts,
        lambda: torch.randn(32, 6, generator=torch.Generator().manual_seed(0)),
        [
            G(10, wb("embed.up"), w("embed.down")),
            *(
                G(size, wb(f"mixtures.{n}.experts.{e}.up"), w(f"mixtures.{n}.experts.{e}.down"))
                for n, size in enumerate((7, 8))
                for e in (0, 1)
            ),
            G(9, wb("tail.0"), w("tail.2")),
            G(3, wb("tail.2"), kind="output"),
        ],
        {"mixtures.0", "mixtures.1"},
        "if len(chosen)",
    ),
    "root_branch": Case(
        RootBranch,
        lambda: _floats(3, 4),
        [
            G(7, wb("blocks.0.up"), w("blocks.0.down")),
            G(8, wb("blocks.1.up"), w("blocks.1.down")),
            G(9, wb("more.0.0"), w("more.0.2")),
        ],
        {""},
        "if x.norm() > 1e6",
    ),
}
