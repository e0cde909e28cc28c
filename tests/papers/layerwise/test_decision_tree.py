import pytest

from papers.layerwise.decision_tree import features, who_wins
from rekindle.statistics import Results, StatisticsError

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'rekindle[stats]'")


def test_the_tree_finds_the_rule_that_was_put_in():
    values = {
        (model, str(noise)): {"fire": {0: float(model == "vgg" or noise > 0.5)}, "none": {0: 0.5}}
        for model in ("vgg", "mlp")
        for noise in (0.1, 0.2, 0.3, 0.6, 0.7, 0.8)
    }
    found = who_wins(Results("accuracy", ("model", "label_noise"), values), min_leaf=1)
    assert found.wins == {"fire": 9, "none": 3} and found.settings == 12
    assert found.accuracy == 1 and found.chance == 0.75
    assert found.features == ("model = vgg", "model = mlp", "label_noise")
    assert "label_noise <= 0.45" in found.text
    assert "100% of the winners" in str(found)
    with_leaf = who_wins(Results("accuracy", ("model", "label_noise"), values))
    assert with_leaf.tree.get_n_leaves() == 1, "no leaf of 7 leaves another of 7 among 12"


def test_words_can_be_numbers():
    values = {("digits",): {"a": {0: 1.0}}, ("mnist",): {"a": {0: 1.0}}}
    names, table = features(Results("accuracy", ("data",), values), {"data": {"digits": 1198, "mnist": 60000}})
    assert names == ("data",) and table.tolist() == [[1198], [60000]]


def test_one_setting_grows_no_tree():
    with pytest.raises(StatisticsError, match="several settings"):
        who_wins(Results("accuracy", (), {(): {"none": {0: 0.1}, "fire": {0: 0.2}}}))
