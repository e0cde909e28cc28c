"""What per-step methods see of a network, against the layers themselves."""

import pytest
import torch
from torch import nn

from rekindle.graph.modules import tensors_of
from rekindle.graph.scan import scan
from rekindle.methods.per_step._layers import biases, chosen, matrices, shifts
from rekindle.methods.state import MethodContext
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


def context_of(name, graph=None, model=None):
    model = model or ZOO[name].build()
    return model, MethodContext(model, graph or graph_of(ZOO[name]), tensors_of(model), (), {}, 0)


def flat(name, model, weight):
    """A weight as [groups?, out, in * kernel] by hand."""
    layer = model.get_submodule(weight.partition(".parametrizations")[0].removesuffix(".weight"))
    values = layer.weight
    if isinstance(layer, nn.ConvTranspose2d):
        return torch.stack([part.transpose(0, 1).flatten(1) for part in values.chunk(layer.groups)]).squeeze(0)
    groups = getattr(layer, "groups", 1)
    return torch.stack([part.flatten(1) for part in values.chunk(groups)]) if groups > 1 else values.flatten(1)


@pytest.mark.parametrize("name", ["mlp", "cnn_bn", "grouped_conv", "conv_transpose", "weight_norm_mlp"])
def test_matrices_are_the_layers_weights_and_gradients_pass(name):
    model, context = context_of(name)
    found, left = matrices(context, ())
    assert found and not left
    for matrix in found:
        expected = flat(name, model, matrix.name)
        assert torch.equal(matrix.read(), expected), matrix.name
    sum(matrix.read().square().sum() for matrix in found).backward()
    named = {name for name, p in model.named_parameters() if p.grad is not None}
    assert {weight.tensor for weight in context.graph.weights} <= named


def test_fused_projections_are_three_matrices_without_a_copy():
    model, context = context_of("vit_fused")
    fused = [matrix for matrix in matrices(context, ())[0] if "[" in matrix.name][:3]
    tensor = model.get_parameter(fused[0].name.partition("[")[0])
    assert torch.equal(torch.cat([matrix.read() for matrix in fused]), tensor)
    assert fused[0].read().data_ptr() == tensor.data_ptr()


def test_what_is_left_alone_has_a_reason():
    model = ZOO["gpt"].build()
    first = "h.0.mlp.c_fc.weight"
    model.get_parameter(first).requires_grad_(False)
    _, context = context_of("gpt", model=model)
    found, left = matrices(context, ("h.1.*",))
    assert left[first] == "not trained" and "embedding" in left["wte.weight"]
    assert {name for name, why in left.items() if why == "named in skip"} >= {"h.1.mlp.c_fc.weight"}
    assert not {matrix.name for matrix in found} & set(left)


def test_trained_tensors_all_or_weights_only():
    _, context = context_of("weight_norm_mlp")
    everything, weights = chosen(context, "all", ()), chosen(context, "weights", ())
    assert set(everything) == {name for name, _ in context.model.named_parameters()}
    assert set(everything) - set(weights) == {name for name in everything if name.endswith("bias")}, (
        "gains go with them"
    )
    assert set(chosen(context, "all", ("fc.*",))) == {name for name in everything if not name.startswith("fc.")}


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("name", ["mlp", "cnn_bn", "layer_norm_mlp"])
def test_biases_with_the_weights_of_their_layer_and_shifts_of_normalization(name, traced):
    model = ZOO[name].build()
    _, context = context_of(name, None if traced else scan(model), model)
    layers = {n for n, m in model.named_modules() if isinstance(m, (nn.Linear, nn.Conv2d)) and m.bias is not None}
    assert {bias: [w.tensor for w in weights] for bias, weights in biases(context).items()} == {
        f"{layer}.bias": [f"{layer}.weight"] for layer in layers
    }
    norms = {n for n, m in model.named_modules() if isinstance(m, (nn.LayerNorm, nn.BatchNorm2d))}
    assert sorted(shifts(context)) == sorted(f"{norm}.bias" for norm in norms)
