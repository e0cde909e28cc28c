import pytest

from papers.experiment import Measure
from papers.extract import value

ROWS = [
    {"stage": 0, "event": "end", "accuracy": 0.5, "epoch": 2},
    {"stage": 1, "event": "boundary", "accuracy": 0.2, "accuracy_before": 0.6, "epoch": 0},
    {"stage": 1, "event": "epoch", "accuracy": 0.9, "epoch": 1},
    {"stage": 1, "event": "end", "accuracy": 0.7, "epoch": 2},
]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        *(("last", 0.7), ("best", 0.9), ("rise", 0.4), ("boundary", 0.2)),
        *(("gap", -0.4), ("first", 0.5), ("ends", 0.6), ("late", 0.7), ("trend", 0.2)),
    ],
)
def test_what_is_read_of_a_run(at, expected):
    assert value(ROWS, Measure(at=at)) == pytest.approx(expected)
    assert value(ROWS, Measure(at=at, scale=100)) == pytest.approx(100 * expected)
    assert value(ROWS, Measure(column="metric.other", at=at)) is None


def test_late_is_the_last_quarter():
    rows = [{"stage": s, "event": "end", "accuracy": float(s)} for s in range(8)]
    assert value(rows, Measure(at="late")) == 6.5
    assert value(rows, Measure(at="trend")) == 6.5 - 0.5


def test_the_rebound_of_the_first_stage():
    losses = [(0, "epoch", 3.0), (0, "epoch", 2.0), (0, "end", 2.5), (1, "boundary", 9.0), (1, "end", 1.0)]
    rows = [{"stage": stage, "event": event, "loss": loss} for stage, event, loss in losses]
    assert value(rows, Measure(column="loss", at="rebound")) == pytest.approx(0.5)
    assert value(rows[:2], Measure(column="loss", at="rebound")) == 0.0, "it still falls"
    assert value(rows, Measure(column="other", at="rebound")) is None


def test_of_one_stage_there_is_no_rise():
    assert value(ROWS[:1], Measure(at="rise")) is None
