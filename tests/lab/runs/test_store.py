import json

import numpy as np
import pytest

from rekindle.lab.runs.rows import TornWarning
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store, StoreError, versions

RUN = Run(seed=3)
ROWS = [{"epoch": 0, "accuracy": 0.5}, {"epoch": 1, "accuracy": np.float32(0.25)}]
TINY = "tests.lab.runs.tiny:execute"


def finished(folder, run=RUN, rows=ROWS):
    store = Store(folder)
    assert store.finish(store.claim(run), run, rows)
    return store


def test_rows_come_back_with_the_fields_of_their_run(tmp_path):
    store = finished(tmp_path)
    rows = store.rows()
    assert [row["accuracy"] for row in rows] == [0.5, 0.25]
    assert all(row["key"] == RUN.key and row["seed"] == 3 and row["data"] == "digits" for row in rows)
    assert store.state(RUN.key) == "finished"
    assert store.read_run(RUN.key)["versions"].keys() >= {"torch", "python", "rekindle", "platform"}
    assert Run.from_dict(store.read_run(RUN.key)["run"]) == RUN


def test_a_finished_run_leaves_no_claim_and_no_checkpoint(tmp_path):
    store = Store(tmp_path)
    claim = store.claim(RUN)
    store.checkpoint(RUN.key).mkdir()
    store.finish(claim, RUN, ROWS)
    assert {path.name for path in store.path(RUN.key).iterdir()} == {"run.json", "rows.jsonl", "done.json"}


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(StoreError, match="holds none"):
        Store(tmp_path).rows()


def test_a_run_with_a_torn_file_counts_as_open(tmp_path):
    store = finished(tmp_path)
    path = store.path(RUN.key) / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.warns(TornWarning, match="counts as open"):
        assert store.state(RUN.key) == "open"
    with pytest.warns(TornWarning):
        assert store.rows() == []


def test_a_torn_marker_is_no_marker(tmp_path):
    store = finished(tmp_path)
    (store.path(RUN.key) / "done.json").write_text('{"rows": 2, "by')
    assert store.state(RUN.key) == "open"


def test_a_lost_claim_publishes_nothing(tmp_path):
    store = Store(tmp_path)
    late = store.claim(RUN)
    late.path.write_text(json.dumps({**json.loads(late.path.read_text()), "started": "1"}))
    new = store.claim(RUN)
    assert new is not None and not store.finish(late, RUN, [{"epoch": 9}])
    assert store.state(RUN.key) == "open"
    assert store.finish(new, RUN, ROWS) and len(store.rows()) == 2


def test_versions_are_texts():
    assert all(isinstance(value, str) for value in versions().values())
