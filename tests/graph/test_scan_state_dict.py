"""Weights by name and shape alone, against the model that the names come from."""

import pytest

from rekindle.graph.modules import tensors_of
from rekindle.graph.scan import scan
from rekindle.graph.scan_state_dict import scan_state_dict
from rekindle.testing import ZOO


# Models without groups, transposed convolutions and fused projections, which names cannot tell.
@pytest.mark.parametrize("name", ["mlp", "vgg", "resnet_bottleneck", "conv1d", "conv3d", "gpt2", "llama"])
def test_matrices_are_those_of_the_model(name):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    model = ZOO[name].build()
    tensors = tensors_of(model)
    found = {weight.name: weight for weight in scan_state_dict({n: tuple(t.shape) for n, t in tensors.items()}).weights}
    for weight in scan(model).weights:
        other = found.pop(weight.name)
        assert other.sizes == weight.sizes and other.module == weight.module, weight.name
        assert (other.role == "embedding") == (weight.role == "embedding")
        assert other.view.read(tensors[weight.tensor]).equal(weight.view.read(tensors[weight.tensor]))
    assert not found


def test_vectors_and_single_rows_are_no_weights():
    graph = scan_state_dict({"bias": (4,), "row": (1, 4), "column": (4, 1), "scale": (1, 1, 4), "w": (2, 2)})
    assert [weight.name for weight in graph.weights] == ["w"]
    assert not graph.traced and not graph.groups and not graph.initializers
    assert graph.parameters["bias"] == (4,)
