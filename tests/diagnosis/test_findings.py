"""Rules on readings that were written by hand."""

import pytest

from rekindle.diagnosis.findings import FEWEST, RULES, FindingRule, find
from rekindle.errors import SettingsError
from rekindle.methods.registry import methods
from rekindle.metrics.reading import Reading


def reading(metric, parts=None, summary=0.0, **details):
    return {metric: Reading(metric, summary, parts or {}, details)}


def rule(**given):
    settings = {
        "compare": lambda readings, fresh: readings["m"].parts,
        "threshold": 1.0,
        "serious": 5.0,
        "sentence": "{n}: {worst} has {value:.1f}",
        "source": "a paper",
        "suggestion": "fire",
        "advice": "do it",
    }
    return FindingRule(**settings | given)


def test_a_rule_speaks_beyond_its_threshold_and_names_the_worst_first():
    values = reading("m", {"a": 2.0, "b": 0.5, "c": 3.0})
    found = rule().find("rule", values, {}, 1.0)
    assert (found.parts, found.value, found.severity) == (("c", "a"), 3.0, "warning")
    assert found.sentence == "2 layers: c has 3.0" and found.threshold == 1.0
    assert rule().find("rule", values, {}, 3.0) is None, "at the threshold is not beyond it"
    assert rule(serious=2.5).find("rule", values, {}, 1.0).severity == "serious"
    assert rule().find("rule", values, {}, 2.5).sentence == "1 layer: c has 3.0"


def test_where_low_is_bad():
    found = rule(lower=True, serious=0.2).find("rule", reading("m", {"a": 0.1, "b": 0.5, "c": 2.0}), {}, 1.0)
    assert (found.parts, found.value, found.severity) == (("a", "b"), 0.1, "serious")


def test_what_is_held_against_the_threshold_may_be_another_value():
    held = lambda readings, fresh: {"a": 0.0, "b": 9.0}  # noqa: E731
    found = rule(held=held).find("rule", reading("m", {"a": 4.0, "b": 2.0}), {}, 1.0)
    assert (found.parts, found.value) == (("b",), 2.0)


SICK = {
    "slow_learner": (reading("trainability", summary=0.3, low=0.2), {}, 0.3),
    "dormant_units": (
        reading("dormant", {"a": 0.5}, scores={"a": [0.0] * 20}),
        reading("dormant", {"a": 0.1}),
        0.4,
    ),
    "frozen_weights": (reading("frozen", {"a": 0.1}), reading("frozen", {"a": 0.04}), 0.06),
    "collapsed_rank": (reading("effective_rank", {"a": 0.1}), reading("effective_rank", {"a": 0.5}), 0.2),
    "large_norms": (reading("weight_norm", {"a": 8.0}), reading("weight_norm", {"a": 2.0}), 4.0),
    "uneven_spectrum": (reading("dfi", scale_free={"a": 50.0}), reading("dfi", scale_free={"a": 2.0}), 25.0),
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_on_what_it_is_about(name):
    now, fresh, value = SICK[name]
    (found,) = find(now, fresh)
    assert found.rule == name and found.value == pytest.approx(value) and found.severity == "warning"
    assert found.source == RULES[name].source and methods(found.suggestion), "the suggestion is a method"
    assert find(now, fresh, {name: -1.0 if RULES[name].lower else 1000.0}) == ()
    assert find(fresh, fresh) == () == find({}, {})
    assert found.to_dict()["parts"] == found.parts


def test_without_a_fresh_network_ratios_say_nothing():
    for name in ("collapsed_rank", "large_norms", "uneven_spectrum"):
        assert find(SICK[name][0], {}) == ()


def test_few_dormant_units_are_chance():
    few = reading("dormant", {"a": 0.5}, scores={"a": [0.0] * (2 * FEWEST - 1)})
    assert find(few, {}) == ()
    enough = reading("dormant", {"a": 0.5}, scores={"a": [0.0] * (2 * FEWEST)})
    assert [finding.rule for finding in find(enough, {})] == ["dormant_units"]


def test_a_slow_learner_must_be_slow_at_the_near_end_of_its_interval():
    assert find(reading("trainability", summary=0.9, low=0.05), {}) == ()


def test_serious_findings_come_first():
    now = SICK["dormant_units"][0] | reading("weight_norm", {"a": 50.0})
    fresh = SICK["dormant_units"][1] | reading("weight_norm", {"a": 2.0})
    assert [(f.rule, f.severity) for f in find(now, fresh)] == [
        ("large_norms", "serious"),
        ("dormant_units", "warning"),
    ]


def test_a_threshold_of_no_rule_is_refused():
    with pytest.raises(SettingsError, match="thresholds of the rules slow_learner"):
        find({}, {}, {"no_such_rule": 1.0})
