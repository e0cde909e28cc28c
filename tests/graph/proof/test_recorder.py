"""Tapes of what is written in place, through views, and behind the back of dispatch."""

import pytest
import torch
from torch import nn

from rekindle.graph.proof.recorder import record
from rekindle.graph.proof.tape import Unfollowable

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


def slices(x):
    y = torch.zeros(3, 4)
    turned, row = y.t(), y[1]
    y[0] = x.sum(0)
    row.add_(1)
    turned[2].mul_(3)
    behind, wide = y.data, row.expand(2, 4)
    turned[0] = x[0, 0]
    y[:2] += wide
    return [behind, row, turned.t(), wide]


def filled_step_by_step(x):
    out = torch.empty(5, 4)
    for n in range(5):
        out[n] = x[n] * (out[n - 1] if n else 1)
    return [out]


def in_place_activations(x):
    y = x * 2
    z = y.view(4, 5)
    y.relu_()
    return [y, z + 1, torch.add(x, 1, out=torch.empty(5, 4))]


def recurrent(x):
    torch.manual_seed(0)
    return [nn.LSTM(4, 3)(x)[0], nn.GRU(4, 3)(x)[0]]


@pytest.mark.parametrize("program", [slices, filled_step_by_step, in_place_activations, recurrent])
def test_values_are_those_of_the_live_call_and_can_be_computed_again(program):
    with torch.no_grad():
        live = program(X.clone())
        tape = record(lambda own, given: program(own["x"]), {"x": X}, {"x"}, None)
        other = program(X * 2)
        assert all(torch.equal(tape.values[v], t) for v, t in zip(tape.outputs, live, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(tape.replay({}), live, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(tape.replay({"x": X * 2}), other, strict=True))


def test_what_is_given_is_not_written_to():
    given, weight = X.clone(), torch.ones(4)
    record(lambda own, x: [x.mul_(own["w"].add_(1))], {"w": weight}, {"w"}, given)
    assert torch.equal(given, X) and torch.equal(weight, torch.ones(4))


def test_memory_that_is_read_as_another_type_is_not_followed():
    def program(own, x):
        y = x.clone()
        seen = y.view(torch.int32)
        y.add_(1)
        return [seen.float()]

    with pytest.raises(Unfollowable, match="two types"):
        record(program, {}, set(), X)


def test_sparse_tensors_are_not_followed():
    with pytest.raises(Unfollowable, match="sparse"):
        record(lambda own, x: [torch.sparse.mm(x.t().to_sparse(), x)], {}, set(), X)
