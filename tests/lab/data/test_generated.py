import pytest
import torch

from rekindle.errors import SettingsError
from rekindle.lab.data import load
from rekindle.lab.data.mnist1d import templates


@pytest.mark.parametrize("signal", [0.5, 1.0, 2.0])
def test_the_first_three_coordinates_are_the_label_in_binary(signal):
    data = load(f"synthetic:signal={signal}", seed=3)
    bits = (data.train.inputs[:, :3] > 0).long()
    assert torch.equal(bits @ torch.tensor([4, 2, 1]), data.train.labels)
    assert (data.train.inputs[:, :3].abs() == signal).all()
    five = data.train.inputs[data.train.labels == 5][0, :3]  # (1, -1, 1) in the paper
    assert five.tolist() == [signal, -signal, signal]


def test_the_rest_is_standard_normal_and_independent_of_the_label():
    data = load("synthetic:train=4000", seed=0)
    noise = data.train.inputs[:, 3:]
    assert noise.shape == (4000, 125)
    assert abs(noise.mean()) < 0.01 and abs(noise.std() - 1) < 0.01
    assert (noise[data.train.labels == 0].mean(0) - noise[data.train.labels == 1].mean(0)).abs().max() < 0.4


def test_synthetic_sets_follow_the_seed_and_test_is_not_train():
    one, same, other = load("synthetic", seed=1), load("synthetic", seed=1), load("synthetic", seed=2)
    assert torch.equal(one.train.inputs, same.train.inputs)
    assert not torch.equal(one.train.inputs, other.train.inputs)
    assert not torch.equal(one.train.inputs, one.test.inputs[:256])


def test_a_draw_is_shared_by_all_seeds():
    one, other = load("synthetic:draw=5", seed=1), load("synthetic:draw=5", seed=2)
    assert torch.equal(one.train.inputs, other.train.inputs) and torch.equal(one.test.labels, other.test.labels)
    assert torch.equal(one.train.inputs, load("synthetic", seed=5).train.inputs)


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


def test_settings_are_checked():
    with pytest.raises(SettingsError, match="signal"):
        load("synthetic:strength=2")
