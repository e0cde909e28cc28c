"""Weights as their layers see them, against the layers."""

import pytest
import torch

from rekindle.errors import PlanError
from rekindle.kernels.spectra import singular_values
from rekindle.metrics import _matrices
from rekindle.metrics._matrices import (
    as_float,
    checked_reference,
    effective,
    elements,
    groups_of,
    left_out,
    matrices,
    matrix_pairs,
    spectra,
    weights_of,
)
from rekindle.metrics.reading import MetricInputs
from rekindle.testing import ZOO
from tests.metrics.subjects import KINDS, plain_matrices, zoo_subject


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("vit_mha", "gpt2")])
def test_matrices_are_those_of_the_layers(name):
    model, subject = ZOO[name].build(), zoo_subject(name)
    layers = [weight for weight in weights_of(subject.graph) if weight.tensor.endswith(".weight")]
    assert layers
    for weight in layers:
        plain = torch.stack(plain_matrices(model, weight.tensor))
        found = matrices(subject.tensors, weight)
        assert torch.equal(found, plain) and elements(weight) == plain.numel()
        assert not found.requires_grad


def test_under_weight_norm_it_is_what_the_layer_computes():
    model, subject = ZOO["weight_norm_mlp"].build(), zoo_subject("weight_norm_mlp")
    for weight in subject.graph.weights:
        layer = model.get_submodule(weight.tensor.partition(".parametrizations.")[0].removesuffix(".weight"))
        torch.testing.assert_close(effective(subject.tensors, weight), layer.weight.detach())


def test_embeddings_are_left_out_and_named():
    graph = zoo_subject("gpt").graph
    names = {weight.name for weight in graph.weights}
    assert {weight.name for weight in weights_of(graph)} | set(left_out(graph)) == names
    assert left_out(graph) and all("embedding" in reason for reason in left_out(graph).values())
    assert left_out(graph, embeddings=True) == {} and len(weights_of(graph, embeddings=True)) == len(graph.weights)


def test_pairs_with_the_reference():
    subject = zoo_subject("mlp", moved=0.1)
    for weight, now, then in matrix_pairs(subject, weights_of(subject.graph)):
        assert torch.equal(now, matrices(subject.tensors, weight))
        assert torch.equal(then, matrices(subject.reference, weight)) and not torch.equal(now, then)


def test_a_reference_that_lacks_something_is_told():
    subject = zoo_subject("mlp")
    with pytest.raises(PlanError, match="no reference"):
        checked_reference(subject, {"layers.0.weight"})
    partial = MetricInputs(subject.tensors, subject.graph, reference={"layers.0.weight": torch.ones(1)})
    assert checked_reference(partial, {"layers.0.weight"}) is partial.reference
    with pytest.raises(PlanError, match="without layers.1.weight"):
        checked_reference(partial, {"layers.0.weight", "layers.1.weight"})


def test_spectra_are_computed_once(monkeypatch):
    subject = zoo_subject("mlp")
    first = dict((weight.name, values) for weight, values in spectra(subject))
    for weight in weights_of(subject.graph):
        assert torch.equal(first[weight.name], singular_values(matrices(subject.tensors, weight)))
    monkeypatch.setattr(_matrices, "singular_values", lambda matrices: 1 / 0)
    assert all(values is first[weight.name] for weight, values in spectra(subject))


def test_groups_of_a_convolution_and_precision():
    grouped = [groups_of(weight) for weight in zoo_subject("grouped_conv").graph.weights]
    model = ZOO["grouped_conv"].build()
    assert grouped == [getattr(module, "groups", 1) for module in model.modules() if hasattr(module, "weight")]
    assert as_float(torch.ones(1, dtype=torch.bfloat16)).dtype == torch.float32
    assert as_float(torch.ones(1, dtype=torch.float64, requires_grad=True)).dtype == torch.float64
