import numpy as np
import pytest

from papers.frozen.dynamics import eigenvalues, norms_over_time, simulate


def test_one_step_by_hand():
    # f = 2 * 3 * 5 + B, B - y = -20: gradient of the first (30 - 20) * 2 * 5 + 0.5 * 3 = 101.5
    path = simulate(np.array([3.0, 5.0]), gain=2.0, error=-20.0, rate=0.1, decay=0.5, steps=1)
    assert path[1] == pytest.approx([3 - 10.15, 5 - 0.1 * (10 * 2 * 3 + 2.5)])


def test_rates_are_the_eigenvalues():
    rows = eigenvalues(4)
    assert len(rows) == 4 * 4 * 2
    assert max(row["gap"] for row in rows) < 1e-4
    assert all(row["rate"] < 0 for row in rows if row["method"] == "triple")
    assert any(row["rate"] > 0 for row in rows if row["method"] == "double")


def test_zero_stays_and_small_triples_decay():
    rows = norms_over_time(1)
    assert {row["norm"] for row in rows if row["method"] == "from zero"} == {0.0}
    small = {row["condition"]: row for row in rows if row["method"] == "from small"}
    assert small["triple, weight decay 0.005"]["growth"] < 0
    assert abs(small["triple, weight decay 0.0"]["growth"]) < 1e-7, "without decay nothing moves it at first order"
