"""What happens at a boundary, as records of a chart."""

import pytest

from rekindle.lab.report.boundary_charts import boundaries
from rekindle.pages.page import Chart


def test_the_change_at_a_boundary_is_the_mean_over_seeds(found):
    [group] = found.groups
    [record] = [r for item in boundaries(group, "accuracy") if isinstance(item, Chart) for r in item.data][1:]
    rows = [r for r in group.rows if r["event"] == "boundary" and r["methods"] == record["method"]]
    by_hand = sum(r["accuracy"] - r["accuracy_before"] for r in rows) / 3
    assert record["change"] == pytest.approx(by_hand) and record["seeds"] == 3
