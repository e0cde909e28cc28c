"""Where the normalization of each block of each zoo model stands, written by hand."""

import pytest
import torch
from torch import nn

from rekindle.edits.edit import Skip
from rekindle.methods.one_shot._blocks import find_blocks
from rekindle.methods.one_shot._placement import find_placement
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of

BEFORE = {  # block: the modules that read its activation
    "mlp": {"layers.0": ["layers.1"], "layers.1": ["layers.2"]},
    "mlp_no_bias": {"layers.0": ["layers.1"], "layers.1": ["layers.2"]},
    "cnn_bn": {"bn1": ["conv2"], "bn2": ["fc"]},
    "grouped_conv": {"conv1": ["conv2"], "conv2": ["conv3"], "conv3": ["head"]},
    "conv1d": {"conv1": ["conv2"], "conv2": ["head"]},
    "conv3d": {"conv1": ["conv2"], "conv2": ["head"]},
    "conv_transpose": {"encode1": ["encode2"], "encode2": ["decode1"], "decode1": ["decode2"]},
    "layer_norm_mlp": {"norm1": ["fc2"], "norm2": ["head"]},
    "group_norm_cnn": {"norm1": ["conv2"], "norm2": ["head"]},
    "rms_norm_mlp": {"up.0": ["down.0"], "up.1": ["down.1"]},
    "squeeze_excite": {"conv2": ["head"]},
    "weight_norm_mlp": {"conv": ["fc"]},
    "dueling": {"conv1": ["conv2"], "conv2": ["value_hidden", "advantage_hidden"]},
    "gru_cells": {"stem": ["cell"]},
}
NOWHERE = {"shared_module": ("stem", "shared"), "tied_autoencoder": ("encoder",)}


@pytest.mark.parametrize("name", ZOO)
def test_before_the_readers_behind_the_module_or_not_at_all(name):
    member = ZOO[name]
    if member.requires:
        pytest.importorskip(member.requires)
    model, example = member.build(), member.example()
    for block in find_blocks(graph_of(member), model):
        place = find_placement(model, block, example, {})
        if block in NOWHERE.get(name, ()):
            assert isinstance(place, Skip) and "could stand between" in place.reason
            continue
        assert not isinstance(place, Skip)
        readers = BEFORE.get(name, {}).get(block)
        assert (place.side, list(place.modules)) == (("after", [block]) if readers is None else ("before", readers))


@pytest.mark.parametrize("logits", [False, True])
def test_logits(logits):
    member = ZOO["cnn_bn"]
    place = find_placement(member.build(), "fc", member.example(), {}, logits=logits)
    if logits:
        assert not isinstance(place, Skip) and (place.side, place.modules) == ("after", ("fc",))
    else:
        assert isinstance(place, Skip) and place.tensor == "fc"


def test_behind_a_recurrent_layer_only_where_its_output_is_all_that_is_used():
    class Net(nn.Module):
        def __init__(self, last_state):
            super().__init__()
            self.rnn, self.head, self.last_state = nn.GRU(3, 4), nn.Linear(4, 2), last_state

        def forward(self, x):
            output, state = self.rnn(x)
            return self.head(state[0] if self.last_state else output[-1])

    place = find_placement(Net(False), "rnn", torch.randn(6, 5, 3), {})
    assert not isinstance(place, Skip) and (place.side, place.modules) == ("after", ("rnn",))
    place = find_placement(Net(True), "rnn", torch.randn(6, 5, 3), {})
    assert isinstance(place, Skip) and "last states" in place.reason
