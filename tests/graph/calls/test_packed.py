"""Packing at full length: only while a model is traced, and with the values that torch has for equal lengths."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph.calls.packed import at_full_length, packed_at_full_length

X = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))  # batch, time, features
FULL = torch.tensor([5, 5, 5])


def same(one, other):
    for a, b in zip(one, other, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


def test_an_example_is_padded_with_zeros_and_the_rest_stays():
    sequences = [torch.ones(2, 4), torch.full((5, 4), 2.0), torch.full((3, 4), 3.0)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    args, kwargs = at_full_length(((packed, X), {"n": 3}))
    assert args[1] is X and kwargs == {"n": 3} and isinstance(args[0], PackedSequence)
    padded, lengths = pad_packed_sequence(args[0], batch_first=True)
    assert lengths.tolist() == [5, 5, 5]
    assert torch.equal(padded, pad_packed_sequence(packed, batch_first=True)[0])


@pytest.mark.parametrize("batch_first", [True, False])
def test_packing_and_padding_are_torch_s_at_equal_lengths(batch_first):
    x = X if batch_first else X.transpose(0, 1)
    expected = pack_padded_sequence(x, FULL, batch_first)
    unpacked = pad_packed_sequence(expected, batch_first, padding_value=7.0, total_length=6)
    with packed_at_full_length(nn.Sequential(nn.GRU(4, 2))):
        found = pack_padded_sequence(x, torch.tensor([5, 2, 1]), batch_first)
        same(found, expected)
        same(pad_packed_sequence(found, batch_first, padding_value=7.0, total_length=6), unpacked)
    assert len(pack_padded_sequence(x, torch.tensor([5, 2, 1]), batch_first).data) == 8  # as ever


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("build", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_layer_gives_what_it_gives_for_equal_lengths(build, batch_first):
    layer = build(4, 6, num_layers=2, bidirectional=True, batch_first=batch_first)
    packed = pack_padded_sequence(X, FULL, batch_first=True, enforce_sorted=False)
    states = torch.randn(4, 3, 6)
    states = (states, -states) if build is nn.LSTM else states
    for given in ((packed,), (packed, states), (X, states) if batch_first else (X.transpose(0, 1), states)):
        output, last = layer(*given)
        with packed_at_full_length(layer):
            again, again_last = layer(*given)
        for one, other in zip((*output, *last), (*again, *again_last), strict=True):
            assert one is other is None or torch.allclose(one, other, atol=1e-6)


def test_layers_are_left_as_they_were_also_after_an_error():
    net = nn.Sequential(nn.GRU(4, 2))
    with pytest.raises(KeyError), packed_at_full_length(net):
        assert "forward" in net[0].__dict__
        raise KeyError
    assert "forward" not in net[0].__dict__ and torch._C._len_torch_function_stack() == 0


class Lengths(nn.Module):
    """Packs by a list of lengths that it makes of a tensor."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x, lengths):
        return self.head(self.rnn(pack_padded_sequence(x, lengths.tolist(), batch_first=True))[1][0])


def test_lengths_that_become_numbers_are_refused_in_three_parts():
    net = Lengths()
    try:
        graph = rk.trace(net, (X, torch.tensor([5, 2, 1])))
    except GraphError as error:
        assert error.expected and error.got and error.fix
        assert "forward" not in net.rnn.__dict__
    else:  # where export follows them
        assert graph.group("rnn.weight_ih_l0").size == 6


def test_a_treatment_with_a_packed_example():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(4, 6), nn.Linear(6, 2)

        def forward(self, packed):
            return self.head(self.rnn(packed)[1][0][-1])

    packed = pack_padded_sequence(X, torch.tensor([5, 2, 1]), batch_first=True)
    net = Net()
    record = rk.fire_(net, example=packed, solver="exact")
    assert {row.tensor for row in record.rows} == {"rnn.weight_ih_l0", "rnn.weight_hh_l0", "head.weight"}
    for gate in net.rnn.weight_hh_l0.chunk(4):
        assert torch.allclose(gate @ gate.T, torch.eye(6), atol=1e-3)
