"""Weights whose roles a trace cannot vouch for, and what methods do about it."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import PlanError

X = torch.rand(2, 3, 6)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.m, self.o = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        h = self.i(x).relu()
        if h.sum() > 1e9:
            return self.o(h)
        return self.o(self.m(h).relu())


class Attention(nn.Module):
    """Attention by hand, under names that tell nothing, in a forward pass that branches."""

    def __init__(self):
        super().__init__()
        self.i, self.a, self.b, self.c = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x):
        h = self.i(x)
        if h.sum() > 1e9:
            return h
        return h + (self.a(h) @ self.b(h).transpose(1, 2)).softmax(-1) @ self.c(h)


class Counted(Branching):
    """An operation that is not understood comes after the last layer, or before the products of attention."""

    def forward(self, x):
        return self.o(self.m(self.i(x).relu()).relu()).cumsum(-1)


class CountedQueries(Attention):
    def forward(self, x):
        h = self.i(x)
        return h + (self.a(h).cumsum(1) @ self.b(h).transpose(1, 2)).softmax(-1) @ self.c(h)


class BranchInside(nn.Module):
    """A part that branches between layers whose roles are seen."""

    class Gate(nn.Module):
        def forward(self, x):
            return x if x.sum() > -1e9 else -x

    def __init__(self):
        super().__init__()
        self.i, self.into, self.gate = nn.Linear(6, 5), nn.Linear(5, 6), self.Gate()
        self.after, self.o = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.o(self.after(self.gate(self.into(self.i(x).relu()))).relu())


def treated(record):
    return [row.tensor for row in record.rows]


def test_where_neither_first_nor_last_is_seen_both_stay():
    graph = rk.trace(Branching(), X, strict=False)
    every = {"i.weight", "m.weight", "o.weight"}
    assert graph.maybe_first.keys() >= every and graph.maybe_last.keys() == every
    record = rk.fire_(Branching(), example=X, first=False, last=False)
    assert treated(record) == []
    assert {skip.tensor: skip.reason for skip in record.skips}["m.weight"].startswith("perhaps the first layer")
    assert treated(rk.fire_(Branching(), example=X)) == ["i.weight", "m.weight", "o.weight"]


def test_weights_on_both_sides_of_what_is_left_out():
    graph = rk.trace(BranchInside(), X, strict=False)
    assert set(graph.maybe_last) == {"into.weight"} and set(graph.maybe_first) == {"after.weight", "after.bias"}
    assert treated(rk.fire_(BranchInside(), example=X, first=False)) == ["into.weight", "o.weight"]
    assert treated(rk.fire_(BranchInside(), example=X, last=False)) == ["i.weight", "after.weight"]


@pytest.mark.parametrize("model", [Attention, CountedQueries], ids=lambda cls: cls.__name__)
def test_products_that_are_not_seen_may_be_those_of_queries_and_keys(model):
    assert not rk.trace(model(), X, strict=False).roles_known
    with pytest.raises(PlanError, match="queries and keys are seen"):
        rk.fire_(model(), example=X)
    assert len(treated(rk.fire_(model(), example=X, attention="all"))) == 4


def test_an_operation_that_is_not_understood_after_the_last_layer():
    graph = rk.trace(Counted(), X, strict=False)
    assert set(graph.maybe_last) == {"o.weight"} and not graph.maybe_first and graph.roles_known
    assert treated(rk.fire_(Counted(), example=X, first=False, last=False)) == ["m.weight"]


@pytest.mark.parametrize("method", ["head_reset", "plasticity_injection"])
def test_methods_for_heads_say_which_weights_may_be_some(method):
    skips = rk.plan(method, Counted(), example=X).skips
    assert any(skip.tensor == "o.weight" and "perhaps a" in skip.reason for skip in skips)


def test_a_model_that_is_seen_whole_has_no_doubts():
    graph = rk.trace(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), X)
    assert graph.roles_known and not graph.maybe_first and not graph.maybe_last
