"""What charts share: colors, titles, bars."""

from rekindle.lab.report.encodings import colors
from rekindle.lab.report.load_runs import read_runs
from tests.lab.report.made_up import made_up


def test_a_method_keeps_its_color_and_untreated_comes_first(tmp_path):
    made_up(tmp_path, {"fire": [0.5], "fresh": [0.4], "none": [0.6]})
    made_up(tmp_path, {"fire": [0.7], "none": [0.6]}, fields={"data": "mnist1d"})
    found = read_runs(tmp_path)
    assert found.results.methods == ["none", "fresh", "fire"]
    scales = [colors(group)["scale"] for group in found.groups]
    one, two = (dict(zip(scale["domain"], scale["range"], strict=True)) for scale in scales)
    assert one["none"] == two["none"] and one["fire"] == two["fire"] and len(set(one.values())) == 3
    assert list(two) == ["none", "fire"]
