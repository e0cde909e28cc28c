"""What methods cost."""

from rekindle.lab.report.load_runs import read_runs
from rekindle.pages.page import Rows
from tests.lab.report.made_up import items, made_up


def test_cost_is_relative_to_the_baseline(tmp_path):
    for method, seconds in ("none", 2.0), ("fire", 3.0):
        made_up(tmp_path, {method: [0.5, 0.6]}, extra={"seconds": seconds})
    [table] = [item for item in items(read_runs(tmp_path), Rows) if "relative to none" in item.columns]
    assert {row[0]: row[list(table.columns).index("relative to none")] for row in table.rows} == {
        "none": 1,
        "fire": 1.5,
    }
