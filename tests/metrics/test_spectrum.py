"""Singular values and stable ranks against single decompositions."""

import pytest
import torch
from torch import nn

from rekindle.kernels.spectra import singular_values
from rekindle.metrics.registry import metric
from rekindle.metrics.spectrum import measure, spectrum
from rekindle.testing import ZOO
from tests.metrics.subjects import KINDS, plain_matrices, subject_of, zoo_subject


def test_by_hand():
    assert spectrum(torch.tensor([2.0, 1.0, 1.0])) == pytest.approx(6 / 4 / 3)
    assert spectrum(torch.zeros(3)) == 0


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("vit_mha", "gpt2")])
def test_layers_of_every_kind(name):
    model, reading = ZOO[name].build(), measure(zoo_subject(name))
    for part in reading.parts:
        matrices = [matrix.double() for matrix in plain_matrices(model, part)]
        ranks = [float(m.square().sum() / torch.linalg.matrix_norm(m, 2) ** 2) for m in matrices]
        side = min(matrices[0].shape)
        assert reading.parts[part] == pytest.approx(sum(ranks) / len(ranks) / side, rel=1e-4)
        assert reading.details["stable_rank"][part] == pytest.approx(sum(ranks) / len(ranks), rel=1e-4)
        means = torch.stack([torch.linalg.svdvals(m) for m in matrices]).mean(0)
        assert reading.details["singular_values"][part] == pytest.approx(means.tolist(), abs=1e-5)
    assert reading.summary == pytest.approx(sum(reading.parts.values()) / len(reading.parts))


def test_orthogonal_is_one_and_rank_one_is_one_over_its_side():
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 4))
    nn.init.orthogonal_(model[0].weight, gain=3.0)
    nn.init.ones_(model[1].weight)
    assert measure(subject_of(model)).parts == pytest.approx({"0.weight": 1.0, "1.weight": 0.25})


def test_values_that_are_not_finite_are_not_a_number_and_stop_nothing():
    matrices = torch.stack([torch.eye(2), torch.eye(2)])
    matrices[1, 0, 0] = float("nan")
    values = singular_values(matrices)
    assert values[0].tolist() == [1.0, 1.0] and values[1].isnan().all()


def test_decomposed_once_for_all_metrics_of_a_subject(monkeypatch):
    calls = []
    monkeypatch.setattr("rekindle.metrics._matrices.singular_values", lambda m: calls.append(1) or singular_values(m))
    subject = zoo_subject("mlp")
    measure(subject)
    metric("lipschitz_bound").measure(subject)
    assert len(calls) == 3
