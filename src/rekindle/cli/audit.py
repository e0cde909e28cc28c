"""`rekindle audit`: has a checkpoint or a model lost its plasticity, where, and what would help."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn


def run(
    checkpoint: Annotated[str, tyro.conf.Positional],
    model: str = "",
    data: str = "",
    reference: str = "",
    html: str = "",
    json: str = "",
    batches: int = 8,
    batch_size: int = 128,
    metrics: tuple[str, ...] = (),
    probe: bool = True,
    seed: int = 0,
) -> None:
    """Read a checkpoint and say what is wrong with it. Weights alone need no code of yours; the rest takes more.

    Args:
        checkpoint: File or folder: safetensors (also sharded) or what torch.save wrote.
        model: Function that builds the model, as package.module:factory; needed for units, activations and the loss.
        data: A data set by name (digits, or a folder of $REKINDLE_DATA), or package.module:function that gives batches.
        reference: Checkpoint of the initial weights, to compare with.
        html: Write a page with charts to this file.
        json: Write everything as JSON to this file.
        batches: How many batches are looked at.
        batch_size: Examples of a batch of a data set by name.
        metrics: Keys of metrics; all that can be run when left out.
        probe: Train copies for a few steps, to compare with fresh networks.
        seed: Seed of every draw.
    """
    import rekindle as rk
    from rekindle.checkpoint.read import open_checkpoint

    subject: Any = built(model, checkpoint) if model else checkpoint
    found = rk.audit(
        subject,
        batches_from(data, batches, batch_size, seed) if data else None,
        reference=open_checkpoint(reference)[0] if reference else None,
        metrics=metrics or None,
        probe=probe,
        seed=seed,
        progress=sys.stderr.isatty(),
    )
    print(found)
    if json:
        print(f"JSON: {found.to_json(json)}")
    if html:
        print(f"page: {found.to_html(html)}")


def built(factory: str, checkpoint: str) -> nn.Module:
    """Return the model that a factory builds, with the weights of a checkpoint."""
    from torch import nn

    from rekindle.checkpoint.read import open_checkpoint
    from rekindle.core.errors import RekindleError

    model = named(factory)()
    if not isinstance(model, nn.Module):
        raise RekindleError(
            expected=f"{factory} to return a model (nn.Module)",
            got=type(model).__name__,
            fix="name a function without arguments that builds it",
        )
    tensors, _ = open_checkpoint(checkpoint)
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
    if ":" in data and "." in data.partition(":")[0]:
        made: Iterable[Any] = named(data)()
        return [batch for batch, _ in zip(made, range(batches), strict=False)]
    import torch

    from rekindle.core.seeds import generator
    from rekindle.data.catalogue import load

    loaded = load(data, seed)
    order = torch.randperm(len(loaded.train), generator=generator(seed, "audit", "batches"))
    train = loaded.train
    return [(train.batch(part), train.labels[part]) for part in order.split(batch_size)[:batches]]


def named(place: str) -> Any:
    """Return what `package.module:name` stands for; modules of the working folder are found too."""
    from rekindle.core.errors import RekindleError

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
