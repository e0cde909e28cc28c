"""Labels of values, against plain loops over their elements."""

from itertools import product

import pytest
import torch

from rekindle.graph.value import NONE, Value, compact, distinct, shrink, varying

COLUMN, ROW = torch.arange(3).reshape(3, 1), torch.arange(4).reshape(1, 4)
FIELDS = {
    "rows": COLUMN.expand(3, 4),
    "columns": ROW.expand(3, 4),
    "both": torch.arange(12).reshape(3, 4),
    "one": torch.zeros((), dtype=torch.long).expand(3, 4),
    "copied rows": COLUMN.expand(3, 4).clone(),
    "nobody": torch.full((3, 4), NONE),
    "first dimension single": torch.arange(4).reshape(1, 4),
}


def by_loop(labels):
    """The dimensions along which some element differs from its neighbor."""
    found = set()
    for place in product(*map(range, labels.shape)):
        for d in range(labels.ndim):
            if place[d] + 1 < labels.shape[d]:
                other = [*place]
                other[d] += 1
                found |= {d} if labels[place] != labels[tuple(other)] else set()
    return found


@pytest.mark.parametrize("name", FIELDS)
def test_varying_compact_and_shrink(name):
    labels = FIELDS[name]
    assert varying(labels) == by_loop(labels)
    assert torch.equal(compact(labels).expand(labels.shape), labels)
    small = shrink(labels)
    assert torch.equal(small, labels)
    assert [d for d in range(small.ndim) if small.shape[d] > 1 and small.stride(d) != 0] == sorted(by_loop(labels))


def test_compact_leaves_out_only_what_is_broadcast():
    assert compact(FIELDS["rows"]).shape == (3, 1) and compact(FIELDS["copied rows"]).shape == (3, 4)


def test_distinct_labels_of_several_fields():
    a, b = torch.tensor([[3, NONE], [1, 3]]), torch.tensor([1, 7]).reshape(2, 1).expand(2, 5)
    assert distinct(a, b).tolist() == [1, 3, 7]
    assert distinct().tolist() == [] == distinct(FIELDS["nobody"]).tolist()


def test_the_field_along_a_dimension():
    value = Value((3, 4), (FIELDS["rows"], FIELDS["columns"]))
    assert value.labels_over(0) is FIELDS["rows"] and value.labels_over(-1) is FIELDS["columns"]
    assert Value((3, 4), (FIELDS["rows"],)).labels_over(1) is None
    single = torch.zeros(1, 4, dtype=torch.long)
    assert Value((1, 4), (single,), along=(0,)).labels_over(0) is single, "a single unit runs where it is said to"
    assert Value((1, 4), (single,)).labels_over(0) is None


@pytest.mark.parametrize(
    ("value", "relevant"),
    [
        (Value((2,)), False),
        (Value((2,), data=True), False),
        (Value((2,), (torch.arange(2),)), True),
        (Value((2,), leaks=torch.tensor([3])), True),
        (Value((2,), opaque=frozenset({"m: op"})), True),
        (Value((2,), sources=frozenset({"w"})), True),
    ],
)
def test_what_is_relevant(value, relevant):
    assert value.relevant is relevant


def test_without_labels_the_rest_stays():
    value = Value((2,), (torch.arange(2),), data=True, base=(0,), along=(0,), sources=frozenset({"w"}))
    plain = value.without_labels()
    assert plain.unit_labels == () and plain.base is None and plain.along is None
    assert plain.data and plain.sources == {"w"} and plain.shape == (2,)


def test_a_buffer_is_no_parameter():
    assert Value((2,), param="w").is_parameter
    assert not Value((2,), param="mean", buffer=True).is_parameter and not Value((2,)).is_parameter
