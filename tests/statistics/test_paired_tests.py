import pytest

from rekindle.statistics.intervals import StatisticsError
from rekindle.statistics.paired_tests import collect, compare_all, last_rows

pytest.importorskip("scipy", reason="scipy is not installed: pip install 'rekindle[stats]'")


def rows_of(values, data="digits", metric="accuracy"):
    """Rows of two stages for {method: [number of seed 0, of seed 1, ...]}; only the last stage counts."""
    return [
        {"key": f"{data}-{method}-{seed}", "data": data, "methods": method, "seed": seed, "stage": stage, "epoch": 1}
        | {metric: number if stage else -5}
        for method, numbers in values.items()
        for seed, number in enumerate(numbers)
        for stage in (1, 0)
    ]


FIVE = {"none": [0.1, 0.2, 0.3, 0.4, 0.5], "fire": [0.2, 0.3, 0.4, 0.5, 0.6], "fresh": [0.3, 0.1, 0.5, 0.3, 0.7]}


def test_the_last_row_counts_in_whatever_order():
    rows = [{"key": "a", "stage": s, "epoch": e, "n": n} for s, e, n in [(1, 2, "last"), (0, 9, "no"), (1, 1, "no")]]
    assert [row["n"] for row in last_rows(rows)] == ["last"]


def test_collect_keeps_what_varies():
    results = collect(rows_of(FIVE) + rows_of({"none": [0.9]}, data="mnist"))
    assert results.fields == ("data",) and results.methods == ["none", "fire", "fresh"]
    assert results.of(("digits",), "fire") == [0.2, 0.3, 0.4, 0.5, 0.6]
    assert results.of(("mnist",), "fire") == []


def test_pairs_are_by_setting_and_seed():
    rows = rows_of({"none": [1, 2, 3], "fire": [5, 6]}) + rows_of({"none": [10], "fire": [20, 30]}, data="mnist")
    results = collect(rows)
    assert results.pairs("fire", "none") == ([5, 6, 20], [1, 2, 10])
    assert results.pairs("fire", "none", per="setting") == ([5.5, 20], [1.5, 10])


def test_compare_all_by_hand():
    found = {(c.better, c.worse): c for c in compare_all(collect(rows_of(FIVE)))}
    assert set(found) == {("fire", "none"), ("fresh", "none"), ("fresh", "fire")}
    fire = found["fire", "none"]
    assert (fire.pairs, fire.wins, fire.p) == (5, 5, 2 / 32)
    assert fire.difference == pytest.approx(0.1) and fire.interval == pytest.approx((0.1, 0.1))
    assert fire.p_holm == pytest.approx(6 / 32), "the smallest of three"
    assert found["fresh", "none"].wins == 3 and found["fresh", "none"].p == 1


def test_a_baseline_makes_a_smaller_family():
    found = compare_all(collect(rows_of(FIVE)), baseline="none")
    assert [(c.better, c.worse) for c in found] == [("fire", "none"), ("fresh", "none")]
    assert found[0].p_holm == pytest.approx(2 / 32)


def test_losses_count_the_other_way():
    results = collect(rows_of(FIVE, metric="loss"), "loss", higher_is_better=False)
    found = {(c.better, c.worse): c for c in compare_all(results)}
    assert ("fire", "none") not in found
    assert found["none", "fire"].wins == 5 and found["none", "fire"].difference == pytest.approx(-0.1)
    assert results.best(()) == "none"


@pytest.mark.parametrize("test", ["wilcoxon", "permutation"])
def test_other_tests(test):
    found = compare_all(collect(rows_of(FIVE)), baseline="none", test=test)
    assert found[0].p == pytest.approx(1 / 32)


def test_two_runs_of_one_cell_are_told():
    rows = rows_of(FIVE)
    rows += [{**row, "key": row["key"] + "again", "extra": 1} for row in rows_of({"fire": [0.3]})]
    with pytest.raises(StatisticsError, match="two of methods=fire, seed=0"):
        collect(rows)


def test_no_rows_are_told():
    with pytest.raises(StatisticsError, match="rows with 'speed'"):
        collect(rows_of(FIVE), "speed")
