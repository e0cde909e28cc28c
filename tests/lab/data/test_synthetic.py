"""The synthetic signal set, as the paper has it."""

import pytest
import torch

from rekindle.errors import SettingsError
from rekindle.lab.data import load


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


def test_settings_are_checked():
    with pytest.raises(SettingsError, match="signal"):
        load("synthetic:strength=2")
