"""Rows as JSON lines, and what a crash leaves of them."""

import warnings

import numpy as np
import pytest

from rekindle.lab.runs.rows import TornWarning, columns, read_lines, to_lines
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store

RUN = Run(seed=3)


ROWS = [{"epoch": 0, "accuracy": 0.5}, {"epoch": 1, "accuracy": np.float32(0.25)}]


def finished(folder, run=RUN, rows=ROWS):
    store = Store(folder)
    assert store.finish(store.claim(run), run, rows)
    return store


@pytest.mark.parametrize("cut", range(1, 25))
def test_a_torn_last_line_is_dropped_with_a_warning(tmp_path, cut):
    path = tmp_path / "rows.jsonl"
    whole = to_lines(ROWS).encode()
    last = len(to_lines(ROWS[1:]))
    path.write_bytes(whole[: -cut - 1])  # without the line's end alone, it is still whole: see below
    assert cut + 1 < last
    with pytest.warns(TornWarning, match="line 2 torn"):
        assert read_lines(path) == ROWS[:1]


def test_a_missing_line_end_is_no_torn_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(to_lines(ROWS).rstrip("\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_lines(path) == ROWS


@pytest.mark.parametrize("rubbish", [b"\0" * 40, b'{"epoch": 2, "acc', b"\xff\xfe\xfd", b"7\n", b"[1, 2]\n"])
def test_rubbish_is_no_row(tmp_path, rubbish):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(to_lines(ROWS).encode() + rubbish)
    with pytest.warns(TornWarning, match="line 3"):
        assert read_lines(path) == ROWS


def test_columns():
    made = columns([{"a": 1, "m": "fire", "b": 1}, {"a": 2, "m": "none", "c": True}])
    assert made["a"].dtype.kind == "i" and made["a"].tolist() == [1, 2]
    assert np.isnan(made["b"][1]) and made["m"].tolist() == ["fire", "none"]
    assert made["c"].tolist() == [None, True]
