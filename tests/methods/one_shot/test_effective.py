"""Which tensors methods on frozen weights treat, and a tensor as its layer sees it."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.edit import Edits
from rekindle.graph.scan import scan
from rekindle.methods.one_shot._effective import (
    dirac_places,
    edits_of,
    plus_dirac,
    share_of_zeros,
    sorted_tensors,
    zeroed,
)
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


@pytest.mark.parametrize("name", ZOO)
def test_every_parameter_is_sorted_once_or_named(name):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    graph = graph_of(ZOO[name])
    weights, vectors, skips = sorted_tensors(graph, ())
    found = [*weights, *vectors, *(skip.tensor for skip in skips)]
    assert sorted(found) == sorted(set(graph.parameters) - set(graph.gains))
    assert all(len(graph.parameters[vector]) == 1 for vector in vectors) and all(skip.reason for skip in skips)
    embeddings = {weight.tensor for weight in graph.weights if weight.role == "embedding"}
    assert embeddings <= {skip.tensor for skip in skips}


def test_what_is_named_in_skip_is_left_with_that_reason():
    weights, vectors, skips = sorted_tensors(graph_of(ZOO["mlp"]), ("layers.0.*",))
    assert [(skip.tensor, skip.reason) for skip in skips] == [
        ("layers.0.weight", "named in skip"),
        ("layers.0.bias", "named in skip"),
    ]
    assert weights == ["layers.1.weight", "layers.2.weight"] and vectors == ["layers.1.bias", "layers.2.bias"]


class Change:
    """A method that changes one tensor as its layer sees it."""

    key, kind = "change", "one-shot"

    def __init__(self, tensor, change):
        self.tensor, self.change = tensor, change

    def plan(self, graph, evidence, seed):
        return Edits(edits_of(graph, self.tensor, self.change, "test"))


@pytest.mark.parametrize(
    ("name", "tensor", "module"),
    [
        ("mlp", "layers.0.weight", "layers.0"),
        ("grouped_conv", "conv2.weight", "conv2"),
        ("weight_norm_mlp", "conv.parametrizations.weight.original1", "conv"),
        ("weight_norm_mlp", "fc.parametrizations.weight.original1", "fc"),
    ],
)
def test_the_layer_sees_the_change_of_what_it_saw(name, tensor, module):
    model, graph = ZOO[name].build(), graph_of(ZOO[name])
    layer = model.get_submodule(module)
    before = layer.weight.detach().clone()
    ramp = torch.linspace(0.5, 2.0, before.numel()).reshape(before.shape)
    rk.apply_(Change(tensor, lambda old: ramp * old), model, graph=graph)
    torch.testing.assert_close(layer.weight.detach(), ramp * before, rtol=1e-5, atol=1e-6)


def test_a_dirac_in_each_weight_that_a_tensor_holds():
    graph = graph_of(ZOO["vit_fused"])
    fused = next(weight.tensor for weight in graph.weights if weight.role == "q")
    added = plus_dirac(graph, fused, torch.zeros(graph.parameters[fused]), 0.5)
    size = graph.parameters[fused][1]
    assert torch.equal(added, torch.cat([0.5 * torch.eye(size)] * 3))
    assert torch.equal(dirac_places(graph, fused), added != 0)
    conv = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2))
    expected = nn.init.dirac_(torch.empty(6, 2, 3, 3), groups=2)
    assert torch.equal(plus_dirac(scan(conv), "0.weight", torch.zeros(6, 2, 3, 3), 1.0), expected)


def test_zeros_and_their_share():
    old, mask = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])
    assert zeroed(old, mask).tolist() == [0.0, 2.0, 0.0] and old.tolist() == [1.0, 2.0, 3.0]
    graph = scan(nn.Linear(3, 4))
    assert share_of_zeros(graph, [mask, mask]) == "sets 4 of 16 parameters to zero: sparsity 0.2500"
