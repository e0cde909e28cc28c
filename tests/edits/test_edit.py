"""Edits as values: which elements they are about, and how plans are joined."""

import torch

from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.edits.surgery import Surgery
from rekindle.graph.regions import UnitIndex


def plain(old, *_):
    return old


def test_without_more_an_edit_is_about_its_region():
    old = torch.randn(4, 3)
    assert Edit("w", plain, "test").reach(old).all()
    rows = UnitIndex((4, 3), (0,), torch.tensor([[1], [3]]))
    assert Edit("w", plain, "test", rows).reach(old).any(1).tolist() == [False, True, False, True]


def test_with_touched_it_is_about_those_elements_of_its_region():
    old, other = torch.tensor([[1.0, -1.0], [2.0, -3.0], [-4.0, 5.0]]), torch.tensor([10.0])
    rows = UnitIndex((3, 2), (0,), torch.tensor([[0], [2]]))
    seen = []

    def negative(part, given):
        seen.append(given)
        return part < 0

    reach = Edit("w", plain, "test", rows, reads=("other",), touched=negative).reach(old, other)
    assert reach.tolist() == [[False, True], [False, False], [True, False]] and reach.dtype == torch.bool
    assert seen[0] is other


def test_a_solution_is_used_where_it_is_there_and_found_where_it_is_not():
    edit = Edit("w", lambda part, solution, other: part + solution + other, "test", solve=lambda part: 10 * part)
    part, other = torch.ones(1, 2, 2), torch.full((1, 2, 2), 100.0)
    assert edit.finished(part, torch.zeros(1, 2, 2), other).unique().tolist() == [101.0]
    assert edit.finished(part, None, other).unique().tolist() == [111.0]


def test_plans_are_joined_in_order():
    def made(word):
        return Edits((Edit(word, plain, "test"),), (Skip(word, "why"),), (word,), (Surgery(word, None, (), "why"),))

    both = made("a") + made("b")
    assert [edit.tensor for edit in both.edits] == ["a", "b"] == [skip.tensor for skip in both.skips]
    assert both.notices == ("a", "b") and [operation.module for operation in both.surgery] == ["a", "b"]
    empty = Edits() + Edits()
    assert not (empty.edits or empty.skips or empty.notices or empty.surgery)
