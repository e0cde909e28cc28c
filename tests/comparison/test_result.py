"""The table of a comparison, against its rows."""

import dataclasses
import json
import math

import pytest

from rekindle.comparison.result import Comparison
from tests.comparison.comparing import told

NONE, FIRE, FRESH = [0.50, 0.51, 0.52, 0.51, 0.50], [0.60, 0.62, 0.60, 0.63, 0.61], [0.40, 0.42, 0.41, 0.40, 0.43]


def found(**more):
    return dataclasses.replace(told(none=NONE, fire=FIRE, fresh=FRESH), **more)


def mean(values):
    return sum(values) / len(values)


def test_outcomes_are_means_over_seeds_and_differences_paired_by_seed():
    by_name = {outcome.method: outcome for outcome in found().outcomes}
    assert list(by_name) == ["none", "fire", "fresh"]
    fire = by_name["fire"]
    assert fire.score.mean == pytest.approx(mean(FIRE)) and fire.score.n == 5
    assert fire.to_none.mean == pytest.approx(mean(FIRE) - mean(NONE)) and fire.to_none.better
    assert fire.to_fresh.mean == pytest.approx(mean(FIRE) - mean(FRESH))
    assert by_name["fresh"].to_none.worse and by_name["fresh"].to_fresh is None and by_name["none"].to_none is None
    assert (fire.p, by_name["none"].p) == (0.5**5, None), "all five seeds are better: one chance in 32"
    assert fire.p_holm == 2 * 0.5**5, "two ways are held against going on"


def test_the_level_is_divided_among_the_ways():
    assert found().level == 1 - 0.05 / 2 and told(none=NONE, fire=FIRE).level == 0.95


def test_after_the_treatment_and_what_it_costs():
    rows = []
    for row in found().rows:
        new = dict(row)
        if row["event"] == "boundary":
            new["score"] = 0.25
        elif row["methods"] == "fire":
            new["seconds"] = {0: 9.0}.get(row["seed"], 3.0)  # one slow machine does not count
        rows.append(new)
    outcome = found(rows=tuple(rows)).outcomes[1]
    assert (outcome.after, outcome.seconds, outcome.cost) == (0.25, 3.0, 3.0)


def test_what_failed_is_told_and_not_judged():
    comparison = found(failed={"fire": "seed 3: it broke"}, notes=("a note",))
    assert [outcome.method for outcome in comparison.outcomes] == ["none", "fresh"]
    assert comparison.gap("fire", "none") is None and comparison.gap("none", "none") is None
    lines = str(comparison).splitlines()
    assert lines[-3:] == ["failed: fire: seed 3: it broke", "a note", comparison.verdict]


def test_every_cell_is_printed_under_its_heading():
    heads, lines = found().cells()
    assert heads[:2] == ["method", "accuracy (%)"] and all(len(line) == len(heads) for line in lines)
    fire = dict(zip(heads, lines[1], strict=True))
    deviation = math.sqrt(sum((value - mean(FIRE)) ** 2 for value in FIRE) / 4)
    assert fire["accuracy (%)"] == "61.2" and fire["deviation"] == f"{100 * deviation:.1f}"
    assert fire["to going on"].startswith("+10.4 [") and fire["cost"] == "1.00x"
    text = str(found())
    assert all(cell in text for line in lines for cell in line) and "5 seeds of 1 steps" in text
    assert dataclasses.replace(found(), score="minus loss").cells()[0][1] == "minus loss"


def test_plain_data_and_names_that_are_not_there():
    data = found().to_dict()
    assert json.loads(json.dumps(data)) == data and data["rows"] == list(found().rows)
    with pytest.raises(AttributeError, match="Comparison.runs is now Comparison.trials"):
        assert found().runs
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assert Comparison((), (), "accuracy").nothing
