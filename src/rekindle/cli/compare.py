"""`rekindle compare`: go on from a checkpoint, treat it, or start afresh? Tried out on new data."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro


def run(
    checkpoint: Annotated[str, tyro.conf.Positional],
    model: str,
    train: str,
    test: str = "",
    methods: tuple[str, ...] = ("none", "fire", "shrink_perturb", "soft_rescale"),
    steps: int = 200,
    epochs: int = 0,
    seeds: int = 5,
    optimizer: str = "adam:lr=1e-3",
    batch_size: int = 256,
    loss: str = "",
    metric: str = "",
    reference: str = "",
    out: str = "",
    html: str = "",
) -> None:
    """Train copies of a checkpoint on new data, untreated, treated and afresh, and say with intervals what is best.

    The cost is that of (methods + 2) x seeds trainings of the given number of steps; going on untreated and a fresh
    start always take part.

    Args:
        checkpoint: File or folder: safetensors (also sharded) or what torch.save wrote.
        model: Function that builds the model, as package.module:factory; it draws the fresh starts too.
        train: The new data: a data set by name (digits, or a folder of $REKINDLE_DATA), or package.module:function
            that gives batches or (inputs, targets).
        test: What the score is measured on, in the same forms; the test part of the data set when left out.
        methods: Methods, several in one with +, as in fire+soft_rescale.
        steps: Steps of each training.
        epochs: Epochs of each training, instead of steps.
        seeds: Repetitions, at least 2.
        optimizer: adam, adamw, sgd or muon, with settings as in sgd:lr=0.1,momentum=0.9.
        batch_size: Examples of a batch, where the data are no batches.
        loss: Function (model, batch) -> scalar, as package.module:function; cross entropy when left out.
        metric: Function (model, batches) -> number, more is better, as package.module:function.
        reference: Checkpoint of the initial weights, for methods that ask for them.
        out: Write the rows into this folder, for `rekindle report`.
        html: Write a page to this file.
    """
    import rekindle as rk
    from rekindle.checkpoint.read import open_checkpoint
    from rekindle.cli._user_code import built, named, whole

    found = rk.compare(
        built(model, checkpoint),
        whole(train, "train"),
        whole(_tested_on(train, test), "test"),
        methods,
        budget=f"{epochs} epochs" if epochs else steps,
        seeds=seeds,
        loss=named(loss) if loss else None,
        optimizer=optimizer,
        metric=named(metric) if metric else None,
        reference=dict(open_checkpoint(reference)[0]) if reference else None,
        fresh=named(model),
        batch_size=batch_size,
        progress=sys.stderr.isatty(),
    )
    print(found)
    if out:
        from rekindle.lab.runs.saved_comparison import save_comparison

        print(f"rows: {save_comparison(found, out)}")
    if html:
        from rekindle.pages.comparison_page import write_comparison_page

        print(f"page: {write_comparison_page(found, html)}")


def _tested_on(train: str, test: str) -> str:
    from rekindle.cli._user_code import is_place
    from rekindle.errors import RekindleError

    if not test and is_place(train):
        raise RekindleError(
            expected="--test beside --train, where that is a function of yours",
            got=f"--train {train} alone",
            fix="name a function that gives held-out data: --test package.module:function",
        )
    return test or train
