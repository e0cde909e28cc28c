"""Without an example: weights by layer type, the same matrices as traced ones."""

import torch
from torch import nn

from rekindle.graph.scan import scan
from rekindle.testing.aged import graph_of
from rekindle.testing.zoo import zoo


def test_scanned_matrices_are_the_traced_ones():
    for member in zoo():
        model = member.build()
        traced = {w.name: w for w in graph_of(member).weights}
        tensors = dict(model.named_parameters())
        both = [weight for weight in scan(model).weights if weight.name in traced]
        assert both or member.name == "mlp_functional", member.name
        for weight in both:
            a = weight.view.read(tensors[weight.tensor])
            b = traced[weight.name].view.read(tensors[weight.tensor])
            assert a.shape == b.shape and weight.gain == traced[weight.name].gain, (member.name, weight.name)


def test_every_kind_of_layer_is_seen():
    model = nn.ModuleDict(
        {
            "attention": nn.MultiheadAttention(6, 2),
            "separate": nn.MultiheadAttention(6, 2, kdim=4, vdim=5),
            "grouped": nn.Conv1d(4, 6, 3, groups=2),
            "transposed": nn.ConvTranspose2d(4, 6, 3, groups=2),
            "embedding": nn.Embedding(5, 3),
            "normed": nn.utils.weight_norm(nn.Linear(3, 2)),
        }
    )
    found = {w.name: (w.role, w.sizes) for w in scan(model).weights}
    assert found["attention.in_proj_weight[k]"] == ("k", (1, 6, 6))
    assert found["attention.out_proj.weight"] == ("o", (1, 6, 6))
    assert found["separate.v_proj_weight"] == ("v", (1, 6, 5))
    assert found["grouped.weight"] == ("hidden", (6, 3, 2))
    assert found["transposed.weight"] == ("hidden", (18, 3, 2))
    assert found["embedding.weight"] == ("embedding", (1, 3, 5))
    assert found["normed.weight_v"] == ("hidden", (1, 2, 3))
    assert str(scan(model)).startswith("12 weights")
    assert not scan(model).traced and torch.is_tensor(scan(model).weights[0].view.rows)
