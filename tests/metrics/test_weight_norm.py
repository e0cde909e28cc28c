"""Norms of weights against loops."""

import math

import pytest
import torch
from torch import nn

from rekindle.metrics.weight_norm import measure, weight_norm
from tests.metrics.subjects import KINDS, subject_of, zoo_subject


def test_by_hand():
    assert weight_norm(torch.tensor([[[1.0, 2.0], [2.0, 4.0]]])) == 5.0


@pytest.mark.parametrize("name", KINDS)
def test_every_weight_counts_once(name):
    subject = zoo_subject(name)
    reading = measure(subject)
    tensors = {weight.tensor for weight in subject.graph.weights}  # embeddings too
    slow = math.sqrt(sum(x * x for tensor in tensors for x in subject.tensors[tensor].flatten().tolist()))
    assert reading.summary == pytest.approx(slow, rel=1e-6)
    for weight in subject.graph.weights:
        assert reading.details["rms"][weight.name] == pytest.approx(
            reading.parts[weight.name] / math.sqrt(math.prod(weight.sizes))
        )


def test_under_weight_norm_it_is_the_gain():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)))
    gain = model[0].parametrizations.weight.original0
    with torch.no_grad():
        gain.copy_(torch.tensor([[1.0], [2.0], [2.0]]))
    assert measure(subject_of(model, torch.zeros(1, 4))).summary == pytest.approx(3.0)


def test_half_precision_does_not_overflow():
    model = nn.Sequential(nn.Linear(300, 300, bias=False)).half()
    nn.init.constant_(model[0].weight, 200.0)
    assert measure(subject_of(model)).summary == pytest.approx(60_000)
