"""Metrics of a network in training, as columns of its rows."""

import sys

import pytest
import torch
from torch import nn

from rekindle.errors import RekindleError
from rekindle.graph import trace
from rekindle.graph.modules import tensors_of
from rekindle.lab.runs import checkpoint
from rekindle.lab.runs.measure import measurer
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.training_run import train_run
from rekindle.metrics.reading import MetricInputs
from rekindle.metrics.registry import metric
from rekindle.training.examples import Examples
from rekindle.training.stage import Stage

SHORT = {"protocol": "warm_start:fraction=0.2,before=3,after=2", "model": "mlp:hidden=16|16", "batch_size": 64}


def run_of(**given):
    return Run.from_dict({**SHORT, **given})


def weights(folder):
    return checkpoint.read(folder)["learner"]["model"]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_metric_that_cannot_be_is_told_before_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse.linalg", None)  # as if SciPy were missing
    told = []
    with pytest.raises(RekindleError, match=r"rekindle\[audit\]"):
        train_run(run_of(metrics=["hessian_top"]), tmp_path, progress=told.append)
    assert not told and not (tmp_path / checkpoint.NAME).exists()


def test_measuring_changes_nothing(tmp_path):
    names = ["gradient_norm", "dormant", "effective_rank"]
    plain, measured = (
        train_run(run_of(metrics=metrics, model="resnet18:width=4", sample_fraction=0.2), tmp_path / str(len(metrics)))
        for metrics in ([], names)
    )
    assert [(row["accuracy"], row["loss"]) for row in plain] == [(row["accuracy"], row["loss"]) for row in measured]
    assert same(weights(tmp_path / "0"), weights(tmp_path / "3"))


def test_metrics_are_columns():
    at_ends = train_run(run_of(metrics=["weight_norm"]), None)
    assert [("metric.weight_norm" in row) for row in at_ends] == [False, False, True, False, False, True]
    always = train_run(run_of(metrics=["weight_norm"], metrics_each="epoch"), None)
    assert all("metric.weight_norm" in row for row in always)
    assert [row["loss"] for row in always] == [row["loss"] for row in at_ends]  # looking changes nothing


def test_the_numbers_are_those_of_the_metrics_themselves():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).train()
    initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        model[0].weight.mul_(2)
    examples = Examples(torch.randn(600, 4), torch.randint(3, (600,)))
    found = measurer(["weight_norm", "distance_from_init", "dormant"], 0)(
        model, Stage("only", examples, examples, epochs=1), initial
    )
    assert model.training and set(found) == {"metric.weight_norm", "metric.distance_from_init", "metric.dormant"}
    graph = trace(model.eval(), examples.inputs[:2])
    inputs = MetricInputs(tensors_of(model), graph, initial)
    assert found["metric.weight_norm"] == metric("weight_norm").measure(inputs).summary
    assert found["metric.distance_from_init"] == metric("distance_from_init").measure(inputs).summary > 0
    assert 0 <= found["metric.dormant"] <= 1
