"""A comparison in a folder of runs."""

import json

import pytest

from rekindle.lab.runs import claim as claims
from rekindle.lab.runs.saved_comparison import save_comparison
from rekindle.lab.runs.store import Store, StoreError
from rekindle.statistics.paired_tests import collect
from tests.comparison.comparing import small


def test_rows_are_read_by_the_store_and_the_statistics(tmp_path):
    found = small()
    store = Store(save_comparison(found, tmp_path / "runs"))
    rows = store.rows()
    assert {row["key"] for row in found.rows} == {trial.key for trial in found.trials}
    assert {row["key"] for row in rows} == set(store.keys()) and len(store.keys()) == len(found.trials)
    assert len(rows) == len(found.rows) == 12
    needed = {"key", "protocol", "data", "model", "methods", "seed", "stage", "epoch", "accuracy", "loss", "seconds"}
    assert all(needed <= set(row) for row in found.rows)
    assert collect(rows).values == collect(found.rows).values
    save_comparison(found, tmp_path / "runs")  # again: replaced
    assert len(Store(tmp_path / "runs").rows()) == 12
    json.dumps(found.to_dict())


def test_a_folder_that_another_process_writes_to_is_refused(tmp_path):
    found = small()
    store = Store(save_comparison(found, tmp_path))
    claim = claims.take(store.path(store.keys()[0]))
    with pytest.raises(StoreError, match="nobody else writes to"):
        save_comparison(found, tmp_path)
    claim.release()
    assert save_comparison(found, tmp_path) == tmp_path
