"""The summary of a group: its numbers and its words."""

import pytest

from rekindle.lab.report.load_runs import read_runs
from rekindle.lab.report.summary import summarize
from rekindle.lab.runs.store import Store
from rekindle.pages.page import Rows, Text
from rekindle.statistics.intervals import mean_interval, spread
from rekindle.statistics.paired_tests import last_rows
from tests.lab.report.made_up import items, made_up, words


def test_the_summary_is_that_of_the_rows(folder, found):
    [table] = [item for item in items(found, Rows) if "accuracy (%)" in item.columns]
    for row in table.rows:
        last = [r for r in last_rows(Store(folder).rows()) if r["methods"] == row[0]]
        finals = [r["accuracy"] for r in sorted(last, key=lambda r: r["seed"])]
        assert row[1:4] == pytest.approx([100 * spread(finals).mean, 100 * spread(finals).deviation, 3])
        assert row[4:6] == pytest.approx([100 * end for end in mean_interval(finals)])
    means = [row[1] for row in table.rows]
    assert means == sorted(means, reverse=True) and (0, 1) in table.marked


def test_few_seeds_are_called_few(found):
    told = words(found)
    assert "n = 3 paired seeds, 1 pair of methods" in told and "p would be 0.25" in told
    assert "cannot be significant" in told and "6 could be" in told  # 2 / 2^6 = 0.031
    assert "significantly" not in told


def test_a_clear_winner_is_called_one(tmp_path):
    made_up(tmp_path, {"none": [0.5] * 6, "fire": [0.6, 0.61, 0.62, 0.6, 0.7, 0.65]})
    [group] = read_runs(tmp_path).groups
    told = [item.words for item in summarize(group) if isinstance(item, Text)]
    assert len(told) == 1 and "fire has the best mean" in told[0] and "significantly better than none" in told[0]
    summary, tests = (item for item in summarize(group) if isinstance(item, Rows))
    assert summary.rows[0][-2:] == [1 / 64, 1 / 64]  # one-sided, against the baseline
    assert tests.rows[0][-3:] == [2 / 64, 2 / 64, "yes"]  # two-sided


def test_the_best_mean_may_win_fewer_seeds(tmp_path):
    made_up(tmp_path, {"none": [0.5, 0.5, 0.5], "fire": [0.4, 0.4, 0.9]})
    [group] = read_runs(tmp_path).groups
    [row] = [item for item in summarize(group) if isinstance(item, Rows)][1].rows
    assert row[0] == "none" and row[1] == pytest.approx(100 * 0.2 / 3) and row[4] == "1 of 3" and row[-1] == "no"
    assert row[2] < row[1] < row[3]


def test_a_single_run_has_no_interval(tmp_path):
    made_up(tmp_path, {"none": [0.5], "fire": [0.6]})
    [group] = read_runs(tmp_path).groups
    summary = next(item for item in summarize(group) if isinstance(item, Rows))
    assert [row[2:6] for row in summary.rows] == [[None, 1, None, None]] * 2
