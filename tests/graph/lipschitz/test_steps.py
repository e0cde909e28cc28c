"""The computation as steps: what is numbered, what is not followed, and what writes into a view."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.lipschitz import NOT_FOLLOWED
from tests.graph.lipschitz.oracle import Function, bound_of, reading_of


def steps(model, example):
    return rk.trace(model, example, strict=False).lipschitz


def test_a_chain_is_numbered_from_the_input_to_the_output():
    found = steps(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(1, 4))
    assert [step.location for step in found.steps] == ["0: aten.linear", "1: aten.relu", "2: aten.linear"]
    assert [step.operands for step in found.steps] == [(NOT_FOLLOWED,), (1,), (2,)]
    assert [step.results for step in found.steps] == [(1,), (2,), (3,)] and found.outputs == (3,)


def test_a_scanned_model_has_none():
    from rekindle.graph.scan import scan

    assert scan(nn.Linear(2, 2)).lipschitz.steps == ()


def test_what_happens_to_the_input_before_the_first_layer_counts():
    layer = nn.Linear(4, 4, bias=False)
    nn.init.eye_(layer.weight)
    first = Function(lambda x: 5 * x.flip(1))
    assert abs(bound_of(nn.Sequential(first, layer), torch.zeros(2, 4)) - 5) < 1e-5
    assert bound_of(nn.Sequential(Function(torch.exp), layer), torch.zeros(2, 4)) is None


class OffThePath(nn.Module):
    """Something without a bound that nothing of the output depends on."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        (y.exp() * y).sum()
        return y.relu()


def test_what_the_output_does_not_depend_on_does_not_count():
    assert bound_of(OffThePath(), torch.zeros(2, 4)) is not None


class InPlace(nn.Module):
    """Units are multiplied in place."""

    def __init__(self, change):
        super().__init__()
        self.linear, self.change = nn.Linear(4, 4), change
        nn.init.eye_(self.linear.weight)

    def forward(self, x):
        return self.change(self.linear(x))


def through_a_view(y):
    y[:, :2].mul_(10.0)
    return y


def under_a_view(y):
    view = y[:, :2]
    y.mul_(10.0)
    return view


@pytest.mark.parametrize("change", [through_a_view, under_a_view])
def test_values_that_change_under_another_name_have_no_bound(change):
    assert bound_of(InPlace(change), torch.zeros(2, 4)) is None


@pytest.mark.parametrize("change", [lambda y: y.mul_(10.0), lambda y: y.view(-1, 2).mul_(10.0).relu_()])
def test_in_place_on_what_has_no_other_use_is_followed(change):
    assert abs(bound_of(InPlace(change), torch.zeros(2, 4)) - 10) < 1e-5


class Several(nn.Module):
    """Two outputs."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)

    def forward(self, x):
        return self.one(x), {"two": self.two(x)}


def test_several_outputs_count_together():
    model = Several()
    nn.init.eye_(model.one.weight)
    nn.init.eye_(model.two.weight)
    assert abs(bound_of(model, torch.zeros(2, 3)) - 2**0.5) < 1e-6


def test_an_operation_that_is_not_understood_is_named():
    class Sorted(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x).cumsum(1)

    found = reading_of(Sorted(), torch.zeros(2, 3))
    assert not found.details["bounded"] and "cumsum" in found.details["why_not"]
