"""Subsets: the smallest by magnitude against a stable sort, and draws against their chances."""

from collections import Counter
from itertools import combinations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from rekindle.kernels.subsets import random_mask, random_subset, share, smallest, smallest_of_all


@given(st.lists(st.integers(-3, 3), max_size=12), st.integers(0, 14))
def test_smallest_against_a_stable_sort(values, count):
    tensor = torch.tensor(values, dtype=torch.float32)
    oracle = torch.zeros(len(values), dtype=torch.bool)
    oracle[torch.argsort(tensor.abs(), stable=True)[:count]] = True
    assert torch.equal(smallest(tensor, count), oracle)


def test_smallest_of_all_by_hand():
    a, b = torch.tensor([[5.0, -1.0]]), torch.tensor([0.5, -4.0, 1.0])
    assert smallest_of_all([a, b], 2, 0)[0].tolist() == [[False, True]]
    assert smallest_of_all([a, b], 2, 1)[0].tolist() == [True, False, False]  # the first of two equals is in a
    assert smallest_of_all([a, b], 3, 1)[0].tolist() == [True, False, True]


@given(st.lists(st.lists(st.integers(-3, 3), max_size=5), min_size=1, max_size=4), st.data())
def test_smallest_of_all_is_the_smallest_of_the_joined_whatever_the_guess(values, data):
    tensors = [torch.tensor(part, dtype=torch.float32) for part in values]
    joined = torch.cat(tensors)
    assume(len(joined))
    count = data.draw(st.integers(1, len(joined)))
    guess = data.draw(st.sampled_from([None, 0.0, 1.0, 2.0, 2.5, 3.0]))
    masks = [smallest_of_all(tensors, count, n, guess)[0] for n in range(len(tensors))]
    assert torch.equal(torch.cat(masks), smallest(joined, count))


def test_share_is_the_nearest_number_and_a_half_goes_up():
    for size in range(30):
        for fraction in (0.0, 0.1, 0.25, 0.5, 1.0):
            found = share(size, fraction)
            nearest = min(abs(count - fraction * size) for count in range(size + 1))
            assert abs(found - fraction * size) == pytest.approx(nearest)
    assert [share(size, 0.5) for size in (1, 3, 5)] == [1, 2, 3]


def test_every_subset_is_equally_likely_and_in_order():
    generator = torch.Generator().manual_seed(0)
    drawn = Counter(tuple(random_subset(5, 2, generator).tolist()) for _ in range(2000))
    assert set(drawn) == set(combinations(range(5), 2))
    assert all(130 < times < 270 for times in drawn.values())  # 200 each, five standard deviations
    assert random_subset(5, 0, generator).tolist() == [] and random_subset(3, 3, generator).tolist() == [0, 1, 2]


def test_each_element_has_the_probability_and_the_generator_decides():
    draw = lambda p: random_mask((100, 100), p, torch.Generator().manual_seed(3))  # noqa: E731
    assert float(draw(0.3).float().mean()) == pytest.approx(0.3, abs=0.02)
    assert not draw(0.0).any() and draw(1.0).all()
    assert torch.equal(draw(0.3), draw(0.3))
