"""Weights of attention blocks, written by hand."""

import pytest

from rekindle.graph.attention_blocks import inside_attention_blocks
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


def below(names, *parts):
    return {name for name in names if name.startswith(parts)}


@pytest.mark.parametrize(
    ("model", "blocks"),
    [
        ("vit_separate", "blocks."),
        ("vit_fused", "blocks."),
        ("vit_mha", "blocks."),
        ("gpt", "h."),
        ("gpt2", "transformer.h."),
        ("llama", "model.layers."),
        ("transformer_encoder", "encoder.layers."),
    ],
)
def test_all_weights_of_the_blocks_and_no_other(model, blocks):
    if ZOO[model].requires:
        pytest.importorskip(ZOO[model].requires)
    graph = graph_of(ZOO[model])
    names = {weight.name for weight in graph.weights}
    inside = inside_attention_blocks(graph)
    assert inside == below(names, blocks)
    assert inside < names, "a patch embedding, a head or an embedding is outside"


@pytest.mark.parametrize("model", ["mlp", "resnet_basic", "mixer", "squeeze_excite"])
def test_without_attention_there_is_none(model):
    assert inside_attention_blocks(graph_of(ZOO[model])) == frozenset()
