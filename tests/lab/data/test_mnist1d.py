"""Ten shapes on a line: repeatable, and learnable."""

import torch

from rekindle.lab.data import load
from rekindle.lab.data.mnist1d import templates


def test_templates_are_ten_different_shapes():
    shapes = templates()
    assert shapes.shape == (10, 12)
    assert (shapes.mean(1).abs() < 1e-5).all()
    distance = torch.cdist(shapes, shapes) + 100 * torch.eye(10)
    assert distance.min() > 1


def test_mnist1d_is_standardized_repeatable_and_learnable():
    data = load("mnist1d")
    assert torch.equal(data.train.inputs, load("mnist1d", seed=5).train.inputs)  # one set for all seeds
    assert not torch.equal(data.train.inputs, load("mnist1d:draw=1").train.inputs)
    assert abs(data.train.inputs.mean()) < 1e-4 and abs(data.train.inputs.std() - 1) < 1e-3
    # Nearest neighbors know far more than chance (0.1), and far less than everything.
    nearest = torch.cdist(data.test.inputs, data.train.inputs).argmin(1)
    accuracy = (data.train.labels[nearest] == data.test.labels).float().mean()
    assert 0.3 < accuracy < 0.95
