"""What runs have in common before methods act is trained once.

Runs that differ in one-shot methods only are equal, bit by bit, up to the first boundary: one of them trains that far
and leaves its state in a folder, from which the others go on. A sweep makes the folder for each beginning that two or
more of its runs have, and takes all of them away when it ends.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rekindle.bench.door import NONE, methods_of
from rekindle.bench.spec import Run
from rekindle.bench.store import Store


def plain(run: Run) -> Run | None:
    """Return the run without its methods, which begins like it; None if a method acts from the first step on.

    Example:
        >>> plain(Run(methods="fire")) == Run(), plain(Run(methods="l2:strength=1e-4+fire"))
        (True, None)
    """
    acts_in_steps = any(hasattr(one, "start") for one in methods_of(run))
    return None if acts_in_steps else replace(run, methods=NONE)


def folder_of(store: Store, run: Run) -> Path | None:
    """Return the folder of a run's beginning if the sweep shares it."""
    alike = plain(run)
    folder = None if alike is None else _all(store) / alike.key
    return folder if folder is not None and folder.is_dir() else None


def prepare(store: Store, runs: Sequence[Run]) -> list[Run]:
    """Make a folder for each beginning that runs share; return the runs with one of each beginning in front.

    So no two of them train the same beginning at the same time, as long as there are other runs.
    """
    alike = {run.key: plain(run) for run in runs}
    counts = Counter(one.key for one in alike.values() if one is not None)
    first: dict[str, Run] = {}
    for run in runs:
        beginning = alike[run.key]
        if beginning is not None and counts[beginning.key] > 1:
            (_all(store) / beginning.key).mkdir(parents=True, exist_ok=True)
            first.setdefault(beginning.key, run)
    leading = list(first.values())
    return leading + [run for run in runs if run not in leading]


def forget(store: Store) -> None:
    """Take the folders away."""
    shutil.rmtree(_all(store), ignore_errors=True)


def _all(store: Store) -> Path:
    return store.folder / "beginnings"
