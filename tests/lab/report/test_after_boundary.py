import pytest

from rekindle.lab.report.after_boundary import after_boundary
from rekindle.lab.report.load_runs import RunGroup
from rekindle.statistics.paired_tests import collect


def rows(method, seed, after, events=("boundary", "epoch", "epoch", "end")):
    head = {"methods": method, "seed": seed, "key": f"{method}{seed}"}
    yield {**head, "stage": 0, "stage_name": "pretraining", "event": "end", "step": 100, "loss": 1.0}
    for number, (event, loss) in enumerate(zip(events, after, strict=True)):
        yield {**head, "stage": 1, "stage_name": "mixture", "event": event, "step": 10 * number, "loss": loss}


def group(*parts):
    every = [row for part in parts for row in part]
    last = [row for row in every if row["event"] == "end" and row["stage"] == 1]
    results = collect(last, "loss", setting=(), higher_is_better=False)
    return RunGroup("text", "", every, results, "none", results.methods)


def test_the_last_stage_by_steps_with_the_treatment_at_step_0():
    found = group(rows("none", 0, (5, 3, 2, 1.5)), rows("none", 1, (7, 3, 2, 2.5)), rows("fire", 0, (9, 4, 2, 1)))
    [chart] = after_boundary(found, "loss")
    none = {record["step"]: record for record in chart.data if record["method"] == "none"}
    assert {step: record["mean"] for step, record in none.items()} == {0: 6, 10: 3, 20: 2, 30: 2}
    assert none[30]["high"] == pytest.approx(2 + 0.5**0.5) and none[0]["seeds"] == 2
    low, high = chart.spec["layer"][1]["encoding"]["y"]["scale"]["domain"]
    assert low < 1 and 4 < high < 5  # fire's 9 right after the treatment is cut off
    assert "from the boundary on" in chart.title and "steps of mixture" in str(chart.spec)


def test_without_a_boundary_or_a_course_there_is_nothing_to_show():
    assert not list(after_boundary(group(rows("none", 0, (3, 2, 1, 1), ("epoch",) * 3 + ("end",))), "loss"))
    assert not list(after_boundary(group(rows("none", 0, (3, 2), ("boundary", "end"))), "loss"))
    assert not list(after_boundary(group(rows("none", 0, (3, 2, 2, 1))), "loss_first"))
