"""A value that is computed when it is first read: once, again after a failure, and as a value in copies."""

import copy
import pickle

import pytest
import torch
from torch import nn

from rekindle.graph import trace
from rekindle.graph.lazy import Lazy, known


def test_computed_once_and_not_before_it_is_read():
    calls = []
    value = Lazy(lambda: calls.append(1) or 7)
    assert not calls
    assert (value.get(), value.get(), len(calls)) == (7, 7, 1)


def test_a_failure_leaves_it_to_be_computed_again():
    answers = iter([KeyboardInterrupt, None])

    def compute():
        if (error := next(answers)) is not None:
            raise error
        return 7

    value = Lazy(compute)
    with pytest.raises(KeyboardInterrupt):
        value.get()
    assert value.get() == 7


def test_copies_and_pickles_hold_the_value():
    value = Lazy(lambda: [1, 2])
    assert pickle.loads(pickle.dumps(value)).get() == copy.deepcopy(value).get() == [1, 2]
    assert known(3).get() == 3


def test_a_trace_does_not_compute_what_nobody_asked_for(monkeypatch):
    walked = []
    monkeypatch.setattr("rekindle.graph.assemble._homogeneity", lambda *args: walked.append(args))
    monkeypatch.setattr("rekindle.graph.assemble.steps_of", lambda *args: walked.append(args))
    graph = trace(nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), torch.ones(1, 3))
    assert not walked
    graph.homogeneity.get(), graph.steps.get(), graph.homogeneity.get()
    assert len(walked) == 2


def test_a_copied_graph_knows_its_scale():
    graph = trace(nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), torch.ones(1, 3))
    again = copy.deepcopy(graph)
    assert again.non_homogeneous == graph.non_homogeneous == {"0": ("1: aten.gelu",), "2": ()}
    assert set(again.scale_constraints.blocks) == {"0.weight", "0.bias", "2.weight", "2.bias"}
