"""Where the normalization of each block of each zoo model stands, written by hand."""

import pytest

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
