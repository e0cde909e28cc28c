"""A real small sweep on digits, trained once for all tests of the report."""

import pytest

from rekindle.lab.report.load_runs import read_runs
from rekindle.lab.runs import execute
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.lab.runs.sweep import Sweep
from tests.lab.report.made_up import FIXED, REASON


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Two methods by three seeds, one run that failed and one that was begun."""
    store = Store(tmp_path_factory.mktemp("report") / "digits_sweep")
    for run in Sweep(fixed=FIXED, grid={"methods": ["none", "fire"]}, seeds=(0, 1, 2)).expand():
        assert execute.execute_run(store, run, execute.TRAIN_RUN, lambda event: None).kind == "finished"
    failed = Run.from_dict({**FIXED, "methods": "fresh"})
    store.fail(store.claim(failed), failed, REASON)
    store.claim(Run.from_dict({**FIXED, "methods": "fresh", "seed": 1})).release()
    return store.folder


@pytest.fixture(scope="session")
def found(folder):
    return read_runs(folder)
