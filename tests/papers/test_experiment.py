from papers.experiment import Cell, Experiment, Paper, Published, Study, cells, published

PAPER = Paper("small", "Small (A)", "A small paper")


def test_what_is_more_special_overrides():
    base = {"data": "digits", "model": "mlp", "batch_size": 1}
    found = cells(base, {"big": {"model": "cnn", "batch_size": 2}}, {"slow": {"methods": "fire", "batch_size": 3}})
    assert found == (Cell("big", "slow", {"data": "digits", "model": "cnn", "batch_size": 3, "methods": "fire"}),)


def test_pairs_can_be_left_out():
    found = cells({}, {"a": {}, "b": {}}, {"none": "none", "fire": "fire"}, skip=[("b", "fire")])
    assert [(cell.condition, cell.method) for cell in found] == [("a", "none"), ("a", "fire"), ("b", "none")]


def test_printed_columns_are_read_row_by_row():
    found = published(["1", "2"], {"a": [1.0, (2.0, 0.5)]}, n=3)
    assert found == {("1", "a"): Published(1.0, None, 3), ("2", "a"): Published(2.0, 0.5, 3)}


def test_runs_of_a_study():
    study = Study(cells({}, {"a": {"data": "digits"}}, {"none": "none"}), seeds=2)
    [(cell, runs)] = study.runs()
    assert cell.condition == "a" and [run.seed for run in runs] == [0, 1] and runs[0].data == "digits"
    [(_, runs)] = study.runs(seeds=1, device="meta")
    assert [(run.seed, run.device) for run in runs] == [(0, "meta")]


def test_data_of_both_tasks_are_needed_and_embedded_sets_are_not():
    change = {"data": "mnist:size=14", "protocol": "task_change:to=cifar10"}
    study = Study(cells({}, {"a": change, "b": {"data": "synthetic:signal=1"}, "c": {}}, {"none": "none"}))
    assert study.data() == ("mnist", "cifar10")


def test_only_what_is_not_reduced_or_comparable_all_the_same_is_compared():
    assert Study().is_as_published and Study(reduced="seeds", comparable=True).is_as_published
    assert not Study(reduced="width").is_as_published


def test_an_experiment_that_is_small_enough_has_one_study():
    whole, small = Study(seeds=9), Study(seeds=1)
    both = Experiment("a", PAPER, "Table 1", "A.", paper_study=whole, cpu_study=small)
    assert (both.study("paper"), both.study("cpu")) == (whole, small)
    assert Experiment("a", PAPER, "Table 1", "A.", paper_study=whole).study("cpu") is whole
    assert Experiment("a", PAPER, "Table 1", "A.", cpu_study=small).study("paper") is None
