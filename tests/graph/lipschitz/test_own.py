"""How a rule is found, and what happens where there is none or it does not fit."""

import pytest
import torch

from rekindle.graph.lipschitz.own import RULES, Own, bounds, only_first, operands_of, own_bound
from rekindle.graph.operations import TABLE, Call
from rekindle.graph.trace_log import TraceLog
from rekindle.graph.value import Value

X, Y, FIXED = Value((2, 3), data=True), Value((2, 3), data=True), Value((2, 3))


def call(op, *args, **kwargs):
    return Call(TraceLog(), op, torch.relu, args, kwargs, (2, 3))


def test_operands_are_what_depends_on_the_input():
    assert operands_of(call("add", X, FIXED)) == [X] and operands_of(call("cat", [X, Y, FIXED])) == [X, Y]


def test_rules_are_found_by_name_and_unknown_operations_have_none():
    assert own_bound(call("relu", X)) == Own((1.0,)) and own_bound(call("nothing of the kind", X)) is None


@pytest.mark.parametrize("error", [IndexError, TypeError, ZeroDivisionError])
def test_a_rule_that_breaks_or_forgets_an_operand_is_no_rule(error, monkeypatch):
    def broken(call):
        raise error

    monkeypatch.setitem(RULES, "relu", broken)
    assert own_bound(call("relu", X)) is None
    monkeypatch.setitem(RULES, "relu", lambda call: Own((1.0,)))
    assert own_bound(call("relu", X, Y)) is None


def test_a_constant_of_the_first_operand_alone():
    assert only_first(call("clamp", X, FIXED), 2.0) == Own((2.0,))
    assert only_first(call("clamp", X, Y), 2.0) is None and only_first(call("clamp", FIXED, X), 2.0) is None


def test_registering():
    rule = bounds("one", "two")(lambda call: None)
    assert RULES.pop("one") is rule and RULES.pop("two") is rule


def test_rules_are_for_operations_that_the_tracer_knows():
    later = {"hstack", "vstack", "subtract", "reflection_pad3d", "replication_pad3d"}  # raw inputs may pass these
    assert set(RULES) - set(TABLE) <= later
