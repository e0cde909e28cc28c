"""The log of a trace: ties against a plain union-find, axes, and what is merged."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rekindle.graph.trace_log import Location, TraceLog, merge_leaks, merge_opaque, merge_sources
from rekindle.graph.value import NONE, Value

LABELS = 8


def components_by_loop(pairs):
    """Each label's smallest partner, by joining sets until nothing changes."""
    sets = [{label} for label in range(LABELS)]
    for a, b in pairs:
        joined = sets[a] | sets[b]
        for label in joined:
            sets[label] = joined
    return [min(each) for each in sets]


pairs = st.lists(st.tuples(st.integers(0, LABELS - 1), st.integers(0, LABELS - 1)), max_size=10)


@given(pairs, pairs)
def test_components_are_those_of_joined_sets(added, multiplied):
    log = TraceLog()
    log.axis("w", (LABELS,), (0,))
    for tag, each in (("add", added), ("mul", multiplied)):
        if each:
            log.tie(*torch.tensor(each).t(), tag)
    assert log.components().tolist() == components_by_loop(added + multiplied)
    assert log.components(lambda tag: tag == "add").tolist() == components_by_loop(added)


def test_ties_are_broadcast_without_repetition_and_without_nobody():
    log = TraceLog()
    log.axis("w", (6,), (0,))
    log.tie(torch.tensor([[0], [1]]), torch.tensor([2, NONE, 1]).expand(50, 2, 3), "add")
    ((a, b, tag),) = log.ties
    assert sorted(zip(a.tolist(), b.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2)] and tag == "add"
    log.tie(torch.tensor([3]), torch.tensor([3]), "add")
    assert len(log.ties) == 1, "a label is tied to itself anyway"


def test_an_axis_has_the_same_labels_each_time_and_shares_none():
    log = TraceLog()
    first, second = log.axis("w", (2, 3), (0,)), log.axis("w", (2, 3), (1,))
    joint = log.axis("w", (2, 3), (0, 1))
    assert [len(each) for each in (first, second, joint)] == [2, 3, 6] and log.total == 11
    assert torch.equal(log.axis("w", (2, 3), (0,)), first) and len(log.axes) == 3
    assert torch.cat([first, second, joint]).tolist() == list(range(11))
    assert log.axis("w", (2, 3), (0,), copy=1).tolist() == [11, 12]
    for label in range(13):
        axis = log.axis_of(label)
        assert axis.start <= label < axis.start + axis.size


def test_without_ties_each_label_stands_alone():
    log = TraceLog()
    log.axis("w", (3,), (0,))
    assert np.array_equal(log.components(), [0, 1, 2])


def test_a_gap_makes_its_result_opaque_and_names_what_it_touches():
    log = TraceLog()
    labels = log.axis("w", (3,), (0,))
    activation = Value((3,), (labels,), data=True, leaks=torch.tensor([7]))
    parameter = Value((3,), sources=frozenset({"odd"}))
    result = log.gap([activation, parameter], Location("block", "aten.mystery"))
    assert result.opaque == {"block: aten.mystery"} == set(log.not_understood)
    assert [each.tolist() for each, _ in log.opaque_labels] == [[0, 1, 2, 7]]
    assert log.reasons == {"odd": "enters block: aten.mystery, which is not understood"}
    assert str(Location("", "aten.add")) == "(model): aten.add"


def test_merging():
    a = Value((1,), leaks=torch.tensor([3, 1]), opaque=frozenset({"x"}), sources=frozenset({"v"}))
    b = Value((1,), leaks=torch.tensor([1]), opaque=frozenset({"y"}), sources=frozenset({"w"}))
    assert merge_leaks(a, b).tolist() == [1, 3] and merge_opaque(a, b) == {"x", "y"}
    assert merge_sources(a, b) == {"v", "w"}
    assert merge_sources(a, Value((1,), data=True)) == frozenset(), "an activation is not made of parameters alone"
