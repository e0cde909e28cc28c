"""Results as Markdown and LaTeX, character by character."""

import pytest

from rekindle.lab.report.tables import cells, results_table, significance_table
from rekindle.statistics.paired_tests import collect, compare_all

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
