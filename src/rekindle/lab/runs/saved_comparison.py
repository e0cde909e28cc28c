"""A comparison in a folder of runs, where `rekindle report` finds it."""

from __future__ import annotations

from pathlib import Path

from rekindle.comparison import Comparison
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store, StoreError


def save_comparison(found: Comparison, folder: str | Path) -> Path:
    """Write the rows into a folder of runs, as `rekindle report` reads it; runs of the same name are replaced.

    Raises:
        StoreError: Another process writes there now.
    """
    store = Store(folder)
    for trial in found.trials:
        run = Run(
            protocol=trial.protocol,
            data=trial.data,
            model=trial.model,
            methods=trial.methods,
            optimizer=trial.optimizer,
            batch_size=trial.batch_size,
            seed=trial.seed,
        )
        claim = store.claim(run)
        if claim is None:
            raise StoreError(
                expected=f"a folder of runs that nobody else writes to: {store.path(run.key)}",
                got="one that another process works on",
                fix="name another folder, or wait until it is done",
            )
        rows = [{**row, "key": run.key} for row in found.rows if row["key"] == trial.key]
        if rows:
            store.finish(claim, run, rows)
        else:
            store.fail(claim, run, found.failed[run.methods])
    return store.folder
