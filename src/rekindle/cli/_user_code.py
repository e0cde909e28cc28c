"""What a user names on the command line: functions of their own modules, checkpoints, data."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn


def built(factory: str, checkpoint: str) -> nn.Module:
    """Return the model that a factory builds, with the weights of a checkpoint."""
    from torch import nn

    from rekindle.checkpoint.read import open_checkpoint
    from rekindle.errors import RekindleError

    model = named(factory)()
    if not isinstance(model, nn.Module):
        raise RekindleError(
            expected=f"{factory} to return a model (nn.Module)",
            got=type(model).__name__,
            fix="name a function without arguments that builds it",
        )
    tensors = open_checkpoint(checkpoint)[0]
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise RekindleError(
            expected="a checkpoint of the model that the factory builds",
            got=" ".join(str(error).split())[:400],
            fix="build the same architecture that was saved, or leave --model out for the weights alone",
        ) from error
    return model


def batches_from(data: str, batches: int, batch_size: int, seed: int) -> Iterable[Any]:
    """Return batches of a data set by name, or from a function."""
    if is_place(data):
        made: Iterable[Any] = named(data)()
        return [batch for batch, _ in zip(made, range(batches), strict=False)]
    import torch

    from rekindle.lab.data.catalog import load
    from rekindle.seeds import generator
    from rekindle.training.tokens import Tokens

    loaded = load(data, seed)
    train, random = loaded.train, generator(seed, "audit", "batches")
    if isinstance(train, Tokens):
        return [train.pair(places) for places in train.draw(batches, batch_size, random)]
    order = torch.randperm(len(train), generator=random)
    return [(train.batch(part), train.labels[part]) for part in order.split(batch_size)[:batches]]


def named(place: str) -> Any:
    """Return what `package.module:name` stands for; modules of the working folder are found too."""
    from rekindle.errors import RekindleError

    module, colon, name = place.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        if not colon:
            raise ImportError("no colon in it")
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RekindleError(
            expected="a function as package.module:name that can be imported from here",
            got=f"{place}: {error}",
            fix="run the command in the folder of that module, or install its package",
        ) from error
    finally:
        sys.path.pop(0)


def whole(data: str, part: Literal["train", "test"]) -> Any:
    """Return all of a data set by name as (inputs, targets), or what a function gives."""
    if is_place(data):
        return named(data)()
    from rekindle.lab.data.catalog import load
    from rekindle.lab.data.dataset import examples_of

    examples = examples_of(getattr(load(data), part))
    return examples.batch(slice(None)), examples.labels


def is_place(data: str) -> bool:
    """Tell a function (`package.module:name`, `module:name`) from a data set by name with settings.

    Example:
        >>> [is_place(text) for text in ("my.data:batches", "data:batches", "digits", "synthetic:signal=1")]
        [True, True, False, False]
    """
    _, colon, name = data.partition(":")
    return bool(colon) and name.isidentifier()
