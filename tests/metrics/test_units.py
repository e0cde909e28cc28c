"""Sums over the elements of units, against reading them out."""

import pytest
import torch

from rekindle.metrics._units import scale_slots, unit_factors, unit_sizes, unit_sums, weight_slots
from tests.metrics.subjects import zoo_subject


@pytest.mark.parametrize("name", ["cnn_bn", "grouped_conv", "gpt2", "llama", "conv_transpose"])
def test_sums_and_factors_of_units_equal_reading_their_elements(name):
    subject = zoo_subject(name)
    for group in subject.graph.groups:
        for slot in (*group.incoming, *group.norms, *group.outgoing):
            tensor = subject.tensors[slot.tensor].detach()
            read_out = slot.where.read(tensor)
            assert torch.allclose(unit_sums(slot.where, tensor), read_out.sum((1, 2)), atol=1e-5)
            assert unit_sizes(slot.where) == read_out[0].numel()
            factors = torch.rand(group.size) + 1
            scaled = (tensor.reshape(slot.where.view) * unit_factors(slot.where, factors)).reshape(tensor.shape)
            assert torch.equal(scaled, slot.where.write(tensor, read_out * factors[:, None, None]))


def test_weights_are_no_biases_and_a_gain_goes_with_its_direction():
    graph = zoo_subject("weight_norm_mlp").graph
    slots = weight_slots(graph, graph.groups[0].incoming)
    assert [slot.tensor for slot in slots] == ["conv.parametrizations.weight.original1"]


def test_scales_of_normalization_layers():
    graph = zoo_subject("cnn_bn").graph
    assert [slot.tensor for group in graph.groups for slot in scale_slots(group)] == ["bn1.weight", "bn2.weight"]
    assert not any(scale_slots(group) for group in zoo_subject("mlp").graph.groups)
