"""Facts about values: equal for equal ones of one type, and for no others."""

import enum
from collections import OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest
import torch

from rekindle.graph.facts import Facts


def facts(item):
    look = Facts()
    look.look(item)
    return look.found


class Color(str, enum.Enum):
    RED = "red"
    BLUE = "blue"


class Named(dict):
    pass


Pair = namedtuple("Pair", "a b")
DIFFERENT = [
    0,
    False,
    0.0,
    -0.0,
    None,
    "0",
    b"0",
    0j,
    (),
    [],
    {},
    set(),
    Ellipsis,
    range(0),
    [0],
    [False],
    [[0]],
    [0, 0],
    (0,),
    deque([0]),
    {0: 0},
    {0: False},
    {False: 0},
    OrderedDict({0: 0}),
    Named({0: 0}),
    defaultdict(int, {0: 0}),
    defaultdict(list, {0: 0}),
    Pair(0, 0),
    {0},
    {False},
    {(0, 1)},
    deque([0], maxlen=1),
    deque([0], maxlen=2),
    {int},
    slice(0),
    slice(0, 1),
    Color.RED,
    Color.BLUE,
    "red",
    np.float32(0),
    np.float64(0),
    np.zeros(1),
    np.ones(1),
    np.zeros((1, 1)),
    np.zeros(1, dtype=int),
    np.array([None]),
    np.array([int]),
    torch.float32,
    torch.device("cpu"),
    torch.Size([0]),
    float("nan"),
    float("inf"),
]


def test_different_values_have_different_facts():
    found = [facts(item) for item in DIFFERENT]
    equal = [(DIFFERENT[i], DIFFERENT[j]) for i in range(len(found)) for j in range(i) if found[i] == found[j]]
    assert not equal


@pytest.mark.parametrize("item", DIFFERENT, ids=repr)
def test_a_value_has_the_same_facts_again(item):
    assert facts(item) == facts(item)


def test_what_is_held_counts_and_not_which_container_it_is():
    shared = [1, 2]
    assert facts([shared, shared]) == facts([[1, 2], [1, 2]])


def test_attributes_of_a_dict_of_its_own_class_are_seen():
    item = Named(a=1)
    before = facts(item)
    item.more = 2
    assert before != facts(item)


def test_values_of_an_array_count_unless_they_are_an_example_s():
    def shape_only(item):
        look = Facts()
        look.values = False
        look.look(item)
        return look.found

    assert shape_only(np.zeros(3)) == shape_only(np.ones(3)) != shape_only(np.ones(4))
