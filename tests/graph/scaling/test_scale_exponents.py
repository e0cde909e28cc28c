"""Sums of exponents and the equations between them, against plain dicts and loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rekindle.graph.scaling.scale_exponents import NEUTRAL, UNCHANGED, ScaleExponents, added, constant

terms = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 3), st.sampled_from([-1.0, 0.5, 1.0])), st.sampled_from([-1.0, 1.0, 2.0])),
    max_size=4,
)


@given(terms)
def test_added_is_the_sum_without_what_cancels(given_terms):
    total = {v: sum(factor * each.get(v, 0.0) for each, factor in given_terms) for v in range(4)}
    assert added(given_terms) == {v: power for v, power in total.items() if power}


def three():
    exponents = ScaleExponents()
    return exponents, [exponents.variable() for _ in range(3)]


def test_equal_sums_have_one_label_and_zero_swallows_all():
    exponents, (a, b, _) = three()
    assert exponents.sum([a, b], [1.0, 1.0]) == exponents.sum([b, a], [1.0, 1.0]) not in (a, b)
    assert exponents.sum([a, a], [1.0, -1.0]) == UNCHANGED == exponents.sum([], [])
    assert exponents.sum([a, NEUTRAL], [1.0, 1.0]) == NEUTRAL
    assert exponents.sums[exponents.sum([a, b], [2.0, -1.0])] == {0: 2.0, 1: -1.0}


def test_a_product_is_the_sum_at_every_element():
    exponents, (a, b, c) = three()
    rows, columns = torch.tensor([[a], [b]]).expand(2, 3), torch.tensor([[c, UNCHANGED, NEUTRAL]]).expand(2, 3)
    found = exponents.product([rows, columns], [2.0, -1.0])
    assert found.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            expected = exponents.sum([int(rows[i, j]), int(columns[i, j])], [2.0, -1.0])
            assert int(found[i, j]) == expected


def test_what_stays_in_proportion_gives_one_equation_for_each_pair():
    exponents, (a, b, c) = three()
    joined = exponents.tie(torch.tensor([[a, b], [a, b]]), torch.tensor([[c, c], [c, NEUTRAL]]))
    assert sorted(map(tuple, (each.items() for each in exponents.equations))) == [
        ((0, 1.0), (2, -1.0)),
        ((1, 1.0), (2, -1.0)),
    ]
    assert joined[1, 1] == b, "what is zero is in proportion to everything"
    exponents.tie(torch.tensor([c]), torch.tensor([a]))
    assert len(exponents.equations) == 2, "known already"


def test_settling_a_dimension_ties_all_along_it():
    exponents, (a, b, c) = three()
    one = exponents.settle(torch.tensor([[a, b, a], [c, c, c]]), [1])
    assert one.shape == (2, 1) and one[1, 0] == c and int(one[0, 0]) in (a, b)
    assert [dict(each) for each in exponents.equations] in ([{0: 1.0, 1: -1.0}], [{1: 1.0, 0: -1.0}])


def test_the_shortest_sum_is_kept():
    exponents, (a, b, _) = three()
    long = exponents.sum([a, b], [1.0, 1.0])
    assert exponents.tie(torch.tensor([long]), torch.tensor([a])).tolist() == [a]
    assert exponents.tie(torch.tensor([a]), torch.tensor([UNCHANGED])).tolist() == [UNCHANGED]


@pytest.mark.parametrize(("labels", "unchanged"), [([UNCHANGED, NEUTRAL], True), ([UNCHANGED, 1], False)])
def test_what_nothing_can_change(labels, unchanged):
    exponents, _ = three()
    assert exponents.is_unchanged(torch.tensor(labels)) is unchanged


def test_fixing_says_that_a_sum_is_zero():
    exponents, (a, *_) = three()
    exponents.fix(torch.tensor([a, UNCHANGED, a]))
    assert exponents.equations in ([{0: 1.0}], [{0: -1.0}])
    assert constant(5, (2, 3)).tolist() == [[5] * 3] * 2
