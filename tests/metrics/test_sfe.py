"""Squared Frobenius error against double loops."""

import math

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.metrics.reading import MetricInputs
from rekindle.metrics.sfe import measure, sfe
from tests.metrics.subjects import KINDS, subject_of, zoo_subject


def test_by_hand():
    before, after = torch.tensor([[1.0, 2.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [3.0, 2.0]])
    assert sfe(before, after) == 13.0 and sfe(before, after, relative=True) == 13 / 9
    assert sfe(after, before, relative=True) == 13 / 14  # divided by the reference's norm, which is the first
    assert sfe(torch.zeros(2), torch.ones(2), relative=True) == math.inf
    assert sfe(torch.zeros(2), torch.zeros(2), relative=True) == 0.0


@pytest.mark.parametrize("name", KINDS)
def test_sum_over_weights_equals_loops(name):
    subject = zoo_subject(name, moved=0.1)
    counted = {w.tensor for w in subject.graph.weights if w.role != "embedding"}
    slow = sum(
        float((a - b) ** 2)
        for tensor in counted
        for a, b in zip(*(d[tensor].flatten().tolist() for d in (subject.tensors, subject.reference)), strict=True)
    )
    squares = sum(float(subject.reference[tensor].double().square().sum()) for tensor in counted)
    reading = measure(subject)
    assert reading.summary == pytest.approx(slow, rel=1e-6)
    assert reading.details["relative_summary"] == pytest.approx(slow / squares, rel=1e-5)
    assert set(reading.details["left_out"]) == {w.name for w in subject.graph.weights if w.role == "embedding"}


def test_fused_projections_are_read_apart():
    subject = zoo_subject("gpt2", moved=0.0)
    reference = dict(subject.reference)
    fused = "transformer.h.0.attn.c_attn.weight"
    reference[fused] = reference[fused].clone()
    reference[fused][:, 12:24] += 0.5  # Conv1D stores in x out: the keys are the middle columns
    reading = measure(MetricInputs(subject.tensors, subject.graph, reference=reference))
    assert reading.parts[f"{fused}[k]"] == pytest.approx(0.25 * 144) and reading.parts[f"{fused}[q]"] == 0


def test_weight_norm_is_multiplied_out():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(3, 2))
    reference = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    direction = "0.parametrizations.weight.original1"
    reference[direction] = 7 * reference[direction]  # the length of the direction means nothing
    assert measure(subject_of(model, torch.zeros(1, 4), reference)).summary == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("reference", [None, {}])
def test_without_reference(reference):
    subject = subject_of(nn.Sequential(nn.Linear(2, 2)), reference=reference)
    with pytest.raises(PlanError, match="reference"):
        measure(subject)
