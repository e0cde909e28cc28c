import pytest

from papers.layerwise.settings import by_setting, printed, stars, table_2, tree
from rekindle.statistics import compare_all

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'rekindle[stats]'")

MARKS = {"\\*": "*", "∘": "o"}


def matrix(text, network):
    """Read one matrix back: {(row, column): mark}."""
    lines = text.split(f"{network}, 18 settings:\n\n")[1].split("\n\n")[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head = table[0][1:]
    return {
        (row[0], column): MARKS[mark] for row in table[2:] for column, mark in zip(head, row[1:], strict=True) if mark
    }


def test_table_2_has_every_number_as_printed():
    table = table_2()
    assert len(table) == 4 * 6 * 3 * 6
    assert (table["oxford_pets, scnn, plain", "BL"].mean, table["oxford_pets, scnn, plain", "BL"].deviation) == (
        13.7,
        0.9,
    )
    assert table["birds2010, resnet, augmented with dropout", "LW"].mean == 13.3
    assert table["cassava, mobile, augmented", "LW"].deviation == 0.4
    assert all(0 < number.mean < 100 and 0 <= number.deviation < 1 for number in table.values())


def test_stars_are_those_of_table_3_for_vgg16():
    """All but one: FC against DSD is a star in print; 17 of 18 settings is a circle elsewhere in the same table."""
    found = matrix(stars(printed(1)), "vgg16")
    assert found.pop(("DSD", "FC")) == "o"
    assert found == {
        **{("BL", "WELS"): "*", ("BL", "FC"): "o", ("BL", "LW"): "o", ("WELSR", "FC"): "*", ("WELSR", "LW"): "*"},
        **{("DSD", "LW"): "*", ("WELS", "FC"): "o", ("WELS", "LW"): "*", ("LW", "FC"): "*"},
    }


def test_pairs_of_table_3_are_significant_for_vgg16():
    """Which of them stay so after Holm's correction depends on the family of tests; here it is one network."""
    found = compare_all(by_setting(printed(1), "vgg16"), intervals=False)
    significant = {(test.worse, test.better) for test in found if test.p < 0.05}
    assert significant == {
        *(("BL", better) for better in ("WELS", "FC", "LW")),
        *((worse, better) for worse in ("WELSR", "DSD", "WELS") for better in ("FC", "LW")),
        ("LW", "FC"),
    }
    corrected = {(test.worse, test.better) for test in found if test.p_holm < 0.05}
    assert {("BL", "FC"), ("BL", "LW"), ("WELS", "FC")} <= corrected


def test_only_lw_beats_the_baseline_with_every_network():
    text = stars(printed(1))
    better = [
        {column for row, column in matrix(text, name) if row == "BL"} for name in ("scnn", "vgg16", "mobile", "resnet")
    ]
    assert set.intersection(*better) == {"LW"}


def test_the_tree_names_fc_with_vgg16_and_asks_for_the_network_first():
    text = tree(printed(1))
    assert "won by: LW 32, FC 23" in text
    first, *_ = text.split("```text\n")[1].splitlines()
    assert first == "|--- network = vgg16 <= 0.50"
    beyond = text.split("|--- network = vgg16 >  0.50\n")[1]
    assert "class: FC" in beyond and "class: LW" not in beyond


def test_networks_of_few_settings_have_no_matrix_of_their_own():
    few = [row for row in printed(1) if ", scnn," in row["condition"] or row["condition"] == "cassava, vgg16, plain"]
    text = stars(few)
    assert "scnn, 18 settings" in text and "vgg16" not in text and "All networks, 19 settings" in text
    assert len(by_setting(few, "vgg16").values) == 1
