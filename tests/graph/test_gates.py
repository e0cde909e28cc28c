"""Gates by names and shapes, against torch's own modules."""

import pytest
import torch
from torch import nn

from rekindle.graph.gates import gate_view, recurrent_weights, stored_gates

MODULES = {
    "lstm": (nn.LSTM(5, 6, num_layers=2, bidirectional=True), 4),
    "projected": (nn.LSTM(5, 6, num_layers=2, proj_size=3), 4),
    "gru": (nn.GRU(5, 6, bias=False), 3),
    "rnn": (nn.RNN(5, 6), 1),
    "square": (nn.LSTM(6, 6), 4),
    "lstm_cell": (nn.LSTMCell(5, 6), 4),
    "gru_cell": (nn.GRUCell(5, 6), 3),
    "rnn_cell": (nn.RNNCell(5, 6), 1),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_and_their_state_dicts_agree(name):
    module, count = MODULES[name]
    shapes = {f"a.b.{n}": tuple(p.shape) for n, p in module.named_parameters()}
    found = dict(recurrent_weights(module))
    assert set(found) == {n for n, p in module.named_parameters() if p.dim() == 2}
    for attribute, view in found.items():
        expected = 1 if "_hr" in attribute else count
        assert stored_gates(f"a.b.{attribute}", shapes) == expected
        weight = getattr(module, attribute)
        blocks = torch.stack(weight.chunk(expected))  # torch's own order of gates
        assert torch.equal(view.read(weight), blocks)
        assert torch.equal(gate_view(tuple(weight.shape), expected).read(weight), blocks)


def test_other_tensors_are_left_alone():
    shapes = {"weight_ih_l0": (8,), "fc.weight": (8, 2), "my_weight_ih": (8, 2), "weight_hh_extra": (8, 2)}
    assert [stored_gates(name, shapes) for name in shapes] == [None] * 4


@pytest.mark.parametrize(
    "shapes",
    [
        {"weight_ih": (8, 3)},
        {"weight_ih": (9, 3), "weight_hh": (8, 2)},
        {"weight_ih": (10, 3), "weight_hh": (10, 5)},
        {"weight_ih": (9, 3), "weight_hh": (9, 2), "weight_hr": (2, 3)},
    ],
    ids=["alone", "of other sizes", "two gates", "a projection without an LSTM"],
)
def test_what_shapes_do_not_tell_is_said(shapes):
    assert "does not tell" in stored_gates("weight_ih", shapes)
