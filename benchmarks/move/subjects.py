"""What is observed: zoo models with a past, what methods are given beside them, and printing without line breaks."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from unittest import mock

import rich.console
import torch
from lookup import part
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

import rekindle as rk

WIDE = 1000  # columns: a renamed word must not move the line breaks of a table
Make = Callable[[Any], Optimizer]


def sgd(parameters: Any) -> Optimizer:
    """SGD with momentum."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def amsgrad(parameters: Any) -> Optimizer:
    """AdamW with a third moment."""
    return torch.optim.AdamW(parameters, lr=1e-3, amsgrad=True)


def outputs(model: nn.Module, batch: Any) -> list[Tensor]:
    """Return all floating-point outputs of a model."""
    found = model(**batch) if isinstance(batch, Mapping) else model(batch)
    return [x for x in pytree.tree_leaves(found) if isinstance(x, Tensor) and x.is_floating_point()]


def small_outputs(model: nn.Module, batch: Any) -> Tensor:
    """Return the mean square of all outputs: a loss that fits every model."""
    return torch.stack([x.square().mean() for x in outputs(model, batch)]).sum()


def learn(model: nn.Module, batch: Any, optimizer: Optimizer) -> None:
    """Take one step towards smaller outputs."""
    optimizer.zero_grad()
    small_outputs(model, batch).backward()
    optimizer.step()


def aged(member: Any, make: Make = torch.optim.Adam, steps: int = 3) -> tuple[nn.Module, Optimizer]:
    """Return a zoo model after a few steps of training, with its optimizer."""
    model = member.build()
    optimizer = make(model.parameters())
    for _ in range(steps):
        learn(model, member.example(), optimizer)
    return model, optimizer


def batches(member: Any) -> list[Any]:
    """Return two batches for a zoo model, of different size."""
    example = member.example()
    return [example, pytree.tree_map(lambda tensor: tensor[: len(tensor) // 2], example)]


def supply(card: Any, member: Any, graph: Any) -> dict[str, Any]:
    """Return what a method needs beside the model; initial weights also where they cannot be drawn."""
    drawn = all(part(graph, "has_law")(name) for name in part(graph, "parameters"))
    given: dict[str, Any] = {} if drawn and "reference" not in card.needs else {"reference": member.build}
    if "data" in card.needs:
        given["data"] = batches(member)
    if "loss" in card.needs:
        given["loss"] = partial(_loss_of_either, member=member)
    return given


def _loss_of_either(model: Any, batch: Any, member: Any) -> Tensor:
    """Return the loss of a model, or of a state dict by way of a twin of the model."""
    if not isinstance(model, Mapping):
        return small_outputs(model, batch)
    given = ((), dict(batch)) if isinstance(batch, Mapping) else ((batch,), {})
    found = pytree.tree_leaves(torch.func.functional_call(member.build(), dict(model), *given))
    return torch.stack([x.square().mean() for x in found if isinstance(x, Tensor) and x.is_floating_point()]).sum()


@contextlib.contextmanager
def wide() -> Iterator[None]:
    """Print tables without line breaks inside the block."""
    usual = rich.console.Console.__init__

    def made_wide(self: Any, *args: Any, **given: Any) -> None:
        usual(self, *args, **{**given, "width": WIDE})

    with mock.patch.object(rich.console.Console, "__init__", made_wide):
        yield


def printed(thing: Any) -> str:
    """Return what printing gives, without line breaks in tables."""
    with wide():
        return str(thing)


@contextlib.contextmanager
def steady_clock() -> Iterator[None]:
    """Let a millisecond pass each time rekindle looks at the clock inside the block, and no time otherwise."""
    usual, ticks = time.perf_counter, [0]

    def tick() -> float:
        if not sys._getframe(1).f_globals.get("__name__", "").startswith("rekindle"):
            return usual()
        ticks[0] += 1
        return ticks[0] / 1000

    with mock.patch.object(time, "perf_counter", tick):
        yield


def one_shot() -> list[Any]:
    """Return the cards of all one-shot methods."""
    return [card for card in rk.list_methods() if card.kind == "one-shot"]
