import pytest

from rekindle.bench.paired import Results, collect, compare_all, last_rows
from rekindle.bench.reproduce.layerwise_settings import table_2
from rekindle.bench.statistics import StatisticsError
from rekindle.bench.tables import cells, results_table, significance_table

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


def test_table_3_of_layerwise_reinitialization():
    """L Table 3, vgg16: the same pairs are significant; which of them stay so there depends on its family of tests."""
    numbers: dict[str, list[float]] = {}
    for (place, method), number in table_2().items():
        if ", vgg16, " in place:
            numbers.setdefault(method, []).append(number.mean)
    found = compare_all(collect(rows_of(numbers)), intervals=False)
    significant = {(c.worse, c.better) for c in found if c.p < 0.05}
    assert significant == {
        *(("BL", better) for better in ("WELS", "FC", "LW")),
        *((worse, better) for worse in ("WELSR", "DSD", "WELS") for better in ("FC", "LW")),
        ("LW", "FC"),
    }
    assert {("BL", "FC"), ("BL", "LW"), ("WELS", "FC")} <= {(c.worse, c.better) for c in found if c.p_holm < 0.05}


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


# --- tables ---


def test_cells():
    row = cells(collect(rows_of(FIVE)), baseline="none")[()]
    assert {method: (cell.is_best, cell.mark) for method, cell in row.items()} == {
        "none": (False, ""),
        "fire": (True, "*"),  # 1/32, and 2/32 after Holm
        "fresh": (False, ""),
    }


def test_the_circle_needs_more_seeds():
    row = cells(collect(rows_of({"none": [0.0] * 8, "fire": [1.0] * 8})), baseline="none")[()]
    assert row["fire"].mark == "o"


def test_markdown():
    rows = rows_of({"none": [0.5, 0.75], "fire|x": [0.75, 1.0]}) + rows_of({"none": [0.25]}, data="mnist")
    assert results_table(collect(rows), percent=True, digits=1) == (
        "| data | none | fire\\|x |\n"
        "| --- | ---: | ---: |\n"
        "| digits | 62.5 ± 17.7 | **87.5 ± 17.7** |\n"
        "| mnist | **25.0** | - |\n"
        "\naccuracy, mean ± deviation over 1 to 2 seeds; best in bold.\n"
    )


def test_latex():
    made = results_table(collect(rows_of({"none": [0.0] * 8, "l2_init": [1.0] * 8})), "latex", baseline="none")
    assert r"none & l2\_init \\" in made
    assert r"$0.00 \pm 0.00$ & $\mathbf{1.00} \pm 0.00^{\circ}$ \\" in made
    assert made.startswith(r"\begin{tabular}{rr}") and "% accuracy, mean" in made


def test_the_table_of_significance():
    results = collect(rows_of({"none": [0.0] * 8, "fire": [1.0] * 8}))
    table = significance_table(compare_all(results), results.methods)
    assert table.splitlines()[2:] == ["| none |  |  ∘ |", "| fire |  |  |"]


# --- who wins where ---


def test_the_tree_finds_the_rule_that_was_put_in():
    winners = pytest.importorskip("rekindle.bench.winners")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'rekindle[stats]'")
    values = {
        (model, str(noise)): {"fire": {0: float(model == "vgg" or noise > 0.5)}, "none": {0: 0.5}}
        for model in ("vgg", "mlp")
        for noise in (0.1, 0.2, 0.3, 0.6, 0.7, 0.8)
    }
    found = winners.who_wins(Results("accuracy", ("model", "label_noise"), values), min_leaf=1)
    assert found.wins == {"fire": 9, "none": 3} and found.settings == 12
    assert found.accuracy == 1 and found.chance == 0.75
    assert found.features == ("model = vgg", "model = mlp", "label_noise")
    assert "label_noise <= 0.45" in found.text
    assert "100% of the winners" in str(found)
    with_leaf = winners.who_wins(Results("accuracy", ("model", "label_noise"), values))
    assert with_leaf.tree.get_n_leaves() == 1, "no leaf of 7 leaves another of 7 among 12"


def test_words_can_be_numbers():
    winners = pytest.importorskip("rekindle.bench.winners")
    values = {("digits",): {"a": {0: 1.0}}, ("mnist",): {"a": {0: 1.0}}}
    names, table = winners.features(Results("accuracy", ("data",), values), {"data": {"digits": 1198, "mnist": 60000}})
    assert names == ("data",) and table.tolist() == [[1198], [60000]]


def test_one_setting_grows_no_tree():
    winners = pytest.importorskip("rekindle.bench.winners")
    with pytest.raises(StatisticsError, match="several settings"):
        winners.who_wins(collect(rows_of(FIVE)))
