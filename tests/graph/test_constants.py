"""A constant notes whether its values were looked at, and tells whether what was seen is still so."""

import torch

from rekindle.graph.constants import Constant


def test_what_nobody_looked_at_may_change():
    held = torch.ones(3)
    constant = Constant(held, "b")
    held.zero_()
    assert not constant.looked_at and constant.holds({"b": held}) and constant.holds({})


def test_what_was_looked_at_is_compared_by_its_name():
    held = torch.tensor([2, 0, 1])
    constant = Constant(held, "b")
    assert constant.read().tolist() == [2, 0, 1] and constant.looked_at
    assert constant.holds({"b": held}) and constant.holds({"b": held.clone()})
    assert not constant.holds({}) and not constant.holds({"b": held.float()}) and not constant.holds({"b": held[:2]})
    held[0] = 5
    assert not constant.holds({"b": held})
    assert constant.read().tolist() == [2, 0, 1], "a trace is about one set of values"


def test_one_without_a_name_is_compared_where_it_is():
    held = torch.tensor([2, 0, 1])
    constant = Constant(held)
    constant.read()
    assert constant.holds({})
    held[0] = 5
    assert not constant.holds({})


def test_who_looks_for_zeros_binds_nothing_else():
    held = torch.tensor([0.0, 1.0])
    constant = Constant(held, "b")
    assert constant.read_zeros().tolist() == [True, False] and constant.looked_at
    held[1] = 7.0
    assert constant.holds({"b": held})
    held[1] = 0.0
    assert not constant.holds({"b": held})


def test_on_the_meta_device_there_are_no_values():
    constant = Constant(torch.ones(3, device="meta"), "b")
    assert constant.read() is None and constant.read_zeros() is None and not constant.looked_at
