from papers.fire.tables import means

SEEN = [
    {"condition": condition, "method": method, "seed": seed, "loss": 2.0 + seed, "other": None}
    for condition, method, seed in (("a", "none", 0), ("a", "none", 1), ("b", "fire", 0))
]


def test_a_line_for_each_method_and_a_column_for_each_measure():
    lines = means(SEEN, ["loss", "other"]).splitlines()
    assert lines == [
        "| method | loss | other |",
        "| --- | ---: | ---: |",
        "| none | 2.500 ± 0.707 | - |",
        "| fire | 2.000 | - |",
    ]


def test_conditions_side_by_side():
    lines = means(SEEN, ["loss"], {"a": "here", "b": "there"}).splitlines()
    assert lines[0] == "| method | here: loss | there: loss |"
    assert lines[2:] == ["| none | 2.500 ± 0.707 | - |", "| fire | - | 2.000 |"]
