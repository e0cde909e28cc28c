"""How operations are followed that write in place, give numbers, or have nothing to work on."""

import pytest
import torch
from torch import nn

from rekindle.graph import trace
from rekindle.graph.trace_log import TraceLog
from rekindle.graph.walking import parameter


class Between(nn.Module):
    """Two layers with a function between them."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(4, 6), nn.Linear(6, 2), function

    def forward(self, x):
        return self.b(self.function(self.a(x)))


def groups(function, strict=True):
    graph = trace(Between(function), torch.rand(3, 4), strict=strict)
    return [(group.name, group.size) for group in graph.groups], graph.not_understood


def doubled(h):
    return h.mul_(2).relu_()


def into_its_own_slice(h):
    out = h.clone()
    out[:, :3] = h[:, 3:]
    return out


def beside_data(h):
    mask = torch.zeros(3, 6)
    mask[:, :2] = 1.0
    return h * mask


def times_its_largest(h):
    return h * h.max().item()


def test_what_is_written_in_place_is_followed():
    assert groups(doubled) == ([("a", 6), ("b", 2)], ())


def test_what_writes_units_where_others_look_is_named():
    found, gaps = groups(into_its_own_slice, strict=False)
    assert found == [("b", 2)] and any("copy_" in gap for gap in gaps)


def test_what_is_written_without_units_does_no_harm():
    assert groups(beside_data, strict=False)[0] == [("a", 6), ("b", 2)]


def test_a_number_made_of_units_is_named_because_nobody_sees_where_it_goes():
    found, gaps = groups(times_its_largest, strict=False)
    assert found == [("b", 2)] and gaps


@pytest.mark.parametrize("size", [0, 3])
def test_a_part_without_elements_adds_no_units(size):
    found, gaps = groups(lambda h: torch.cat([h[:, :size], h[:, size:]], 1))
    assert found == [("a", 6), ("b", 2)] and not gaps


def test_a_parameter_has_labels_along_each_of_its_dimensions():
    log = TraceLog()
    value = parameter(log, "w", (2, 3))
    assert [labels.tolist() for labels in value.unit_labels] == [[[0] * 3, [1] * 3], [[2, 3, 4]] * 2]
    assert value.is_parameter and value.base == (0, 1) and value.sources == {"w"}
