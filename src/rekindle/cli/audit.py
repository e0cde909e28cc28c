"""`rekindle audit`: has a checkpoint or a model lost its plasticity, where, and what would help."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import tyro


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
    from rekindle.cli._user_code import batches_from, built

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
