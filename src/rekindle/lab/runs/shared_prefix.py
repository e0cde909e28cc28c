"""What runs have in common before methods act is trained once.

Runs that differ in one-shot methods only, or in settings of the protocol that matter later (`after_boundary`), are
equal, bit by bit, up to the first boundary: one of them trains that far and leaves its state in a folder, from which
the others go on. A sweep makes the folder for each prefix that two or more of its runs have, and takes all of them away
when it ends.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rekindle.lab.protocols.catalog import protocol
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.lab.runs.validate import methods_of
from rekindle.methods.kinds import IN_STEPS, kind_of
from rekindle.methods.spec import UNTREATED, change


def plain(run: Run) -> Run | None:
    """Return the run without its methods, which begins like it; None if a method acts from the first step on.

    Example:
        >>> plain(Run(methods="fire")) == Run(), plain(Run(methods="l2:strength=1e-4+fire"))
        (True, None)
    """
    acts_in_steps = any(kind_of(one) in IN_STEPS for one in methods_of(run.methods))
    if acts_in_steps:
        return None
    later: tuple[str, ...] = getattr(protocol(run.protocol), "after_boundary", ())
    return replace(run, methods=UNTREATED, protocol=change(run.protocol, **dict.fromkeys(later)))


def folder_of(store: Store, run: Run) -> Path | None:
    """Return the folder of a run's prefix if the sweep shares it."""
    alike = plain(run)
    folder = None if alike is None else _all(store) / alike.key
    return folder if folder is not None and folder.is_dir() else None


def prepare(store: Store, runs: Sequence[Run]) -> list[Run]:
    """Make a folder for each prefix that runs share; return the runs with one of each prefix in front.

    So no two of them train the same prefix at the same time, as long as there are other runs.
    """
    alike = {run.key: plain(run) for run in runs}
    counts = Counter(one.key for one in alike.values() if one is not None)
    first: dict[str, Run] = {}
    for run in runs:
        prefix = alike[run.key]
        if prefix is not None and counts[prefix.key] > 1:
            (_all(store) / prefix.key).mkdir(parents=True, exist_ok=True)
            first.setdefault(prefix.key, run)
    leading = list(first.values())
    return leading + [run for run in runs if run not in leading]


def forget(store: Store) -> None:
    """Take the folders away."""
    shutil.rmtree(_all(store), ignore_errors=True)


def _all(store: Store) -> Path:
    return store.folder / "shared_prefixes"
