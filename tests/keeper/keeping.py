"""A small network, its batches and a loop with a Keeper."""

import torch
from torch import nn

EXAMPLE = torch.zeros(1, 8)
METHODS = ["soft_rescale", "l2_init:strength=0.01", "redo:period=2,threshold=0.3", "cbp:rate=0.1,maturity=1", "snr"]


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 4))


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(number)
    return torch.randn(32, 8, generator=draw), torch.randint(0, 4, (32,), generator=draw)


def backward(model, keeper, inputs, targets, scale=1.0) -> None:
    ((nn.functional.cross_entropy(model(inputs), targets) + keeper.penalty()) * scale).backward()


def train(model, optimizers, keeper, steps, first=0) -> None:
    optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
    for number in range(first, first + steps):
        for each in optimizers:
            each.zero_grad()
        backward(model, keeper, *batch(number))
        for each in optimizers:
            each.step()
        keeper.step()


def values(model) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.state_dict().values()]


def same(a, b) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def kill(model, unit: int = 3) -> None:
    """Make a unit of the first layer dormant."""
    model[0].weight.data[unit], model[0].bias.data[unit] = 0.0, -9.0
