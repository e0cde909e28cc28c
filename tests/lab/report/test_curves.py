"""Courses of training, as records of a chart."""

from rekindle.lab.report.curves import course, starts
from rekindle.lab.report.load_runs import read_runs
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from tests.lab.report.made_up import made_up


def test_metrics_of_runs_that_stop_early_meet_at_the_end_of_the_stage(tmp_path):
    made_up(tmp_path, {"none": [0.5]}, extra={"epoch": 3, "metric.dfi": 1.0})
    store, run = Store(tmp_path), Run(seed=1)
    store.finish(store.claim(run), run, [{"event": "end", "stage": 0, "epoch": 7, "accuracy": 1, "metric.dfi": 2.0}])
    [group] = read_runs(tmp_path).groups
    [record] = course(group, "metric.dfi", starts(group.rows))
    assert (record["epoch"], record["mean"], record["seeds"], record["moment"]) == (7, 1.5, 2, "end")


def test_the_course_steps_at_the_boundary(found):
    [group] = found.groups
    assert starts(group.rows) == {0: 0, 1: 2}
    data = [record for record in course(group, "accuracy", starts(group.rows)) if record["method"] == "fire"]
    assert [(record["epoch"], record["moment"]) for record in data] == [
        (1, "epoch"),
        (2, "epoch"),
        (2, "before"),
        (2, "after"),
        (3, "epoch"),
        (4, "epoch"),
    ]
