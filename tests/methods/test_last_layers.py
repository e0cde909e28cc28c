"""Which layers come last, written by hand."""

import pytest
import torch
from torch import nn

from rekindle.graph import trace
from rekindle.methods.last_layers import last_layers
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


def tensors(name, layers):
    slots, skips, depth = last_layers(graph_of(ZOO[name]), layers)
    return {slot.tensor for slot in slots}, [skip.tensor for skip in skips], depth


def both(*modules):
    return {f"{module}.{leaf}" for module in modules for leaf in ("weight", "bias")}


@pytest.mark.parametrize(
    ("name", "layers", "modules", "depth"),
    [
        ("mlp", 0, [], 0),
        ("mlp", 1, ["layers.2"], 1),
        ("mlp", 2, ["layers.2", "layers.1"], 2),
        ("mlp", "all", ["layers.2", "layers.1", "layers.0"], 3),
        ("mlp", 99, ["layers.2", "layers.1", "layers.0"], 3),
        ("vgg", 1, ["classifier.4"], 1),
        ("vgg", "all", ["classifier.4", "classifier.2", "classifier.0"], 3),  # convolutions are not connected
    ],
)
def test_layers_from_the_end(name, layers, modules, depth):
    assert tensors(name, layers) == (both(*modules), [], depth)


def test_norms_go_along_below_the_head():
    found, _, depth = tensors("layer_norm_mlp", 2)
    assert depth == 2 and any("norm" in name for name in found)
    assert not any("norm" in name for name in tensors("layer_norm_mlp", 1)[0])


def test_a_head_that_is_an_embedding_too_is_left_alone_with_a_reason():
    found, skips, depth = tensors("gpt", 1)
    assert not found and depth == 0 and skips


def test_several_heads_are_one_layer():
    found, _, depth = tensors("dueling", 1)
    model = ZOO["dueling"].build()
    heads = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert depth == 1 and len({name.rpartition(".")[0] for name in found}) > 1
    assert {name.rpartition(".")[0] for name in found} < heads


def test_slots_are_the_rows_of_the_layer_and_no_other():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    slots, _, _ = last_layers(trace(net, torch.ones(1, 4)), 1)
    for slot in slots:
        assert slot.where.mask(net.get_parameter(slot.tensor)).all(), slot.tensor
