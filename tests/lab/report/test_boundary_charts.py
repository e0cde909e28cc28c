"""What happens at a boundary, as records of a chart."""

import pytest

from rekindle.lab.report.boundary_charts import boundaries
from rekindle.lab.report.load_runs import read_runs
from rekindle.pages.page import Chart, Text
from tests.lab.report.made_up import made_up


def test_the_change_at_a_boundary_is_the_mean_over_seeds(found):
    [group] = found.groups
    [record] = [r for item in boundaries(group, "accuracy") if isinstance(item, Chart) for r in item.data][1:]
    rows = [r for r in group.rows if r["event"] == "boundary" and r["methods"] == record["method"]]
    by_hand = sum(r["accuracy"] - r["accuracy_before"] for r in rows) / 3
    assert record["change"] == pytest.approx(by_hand) and record["seeds"] == 3


def test_a_method_that_changed_nothing_is_told(tmp_path):
    made_up(tmp_path, {"none": [0.5], "fire": [0.6]})
    made_up(tmp_path, {"head_reset": [0.5]}, extra={"no_effect": "a head that is tied"})
    [group] = read_runs(tmp_path).groups
    [told] = [item.words for item in boundaries(group, "accuracy") if isinstance(item, Text)]
    assert told == "head_reset changed nothing at a boundary, and is there the same as none: a head that is tied."
