import math

import pytest
import torch

from rekindle.errors import SettingsError
from rekindle.lab.data.augment import (
    AUGMENTATIONS,
    Affine,
    Blur,
    Color,
    Crop,
    EnlargeCrop,
    Flip,
    RandomBlur,
    Shift,
    augmentation,
)


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count=64, channels=3, size=8):
    return torch.rand(count, channels, size, size, generator=random(1))


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_all_keep_shape_and_input_and_repeat_with_the_seed(name):
    given = images()
    kept = given.clone()
    step = augmentation(name)
    assert torch.equal(step(given, random(3)), step(given, random(3)))
    assert step(given, random(3)).shape == given.shape
    assert torch.equal(given, kept)


@pytest.mark.parametrize("name", ["flip", "crop", "shift", "enlarge_crop", "random_blur", "rotate"])
def test_another_seed_gives_other_images(name):
    step = augmentation(name)
    assert not torch.equal(step(images(), random(3)), step(images(), random(4)))


def test_flip_mirrors_about_half():
    given = images(400)
    made = Flip()(given, random())
    turned = (made == given.flip(-1)).flatten(1).all(1)
    same = (made == given).flatten(1).all(1)
    assert (turned ^ same).all()
    assert 150 < turned.sum() < 250
    assert torch.equal(Flip(horizontal=0, vertical=1)(given, random()), given.flip(-2))


def windows(given, padding):
    """Every window of the padded images, the slow and obvious way."""
    size = given.shape[-1]
    padded = torch.nn.functional.pad(given, (padding,) * 4)
    return [padded[..., y : y + size, x : x + size] for y in range(2 * padding + 1) for x in range(2 * padding + 1)]


@pytest.mark.parametrize(("step", "padding"), [(Crop(padding=2), 2), (Shift(size=0.5), 4), (Shift(size=1.0), 8)])
def test_crop_and_shift_cut_windows(step, padding):
    given = images(32)
    made = step(given, random())
    every = torch.stack(windows(given, padding))  # [windows, n, c, h, w]
    found = (every == made).flatten(2).all(2)  # [windows, n]
    assert found.any(0).all()
    assert len(found.float().argmax(0).unique()) > 10  # not one place for all


def test_enlarge_crop_shows_a_part_of_a_larger_image():
    ramp = torch.linspace(0, 1, 16).expand(5, 1, 16, 16)
    made = EnlargeCrop(ratio=2)(ramp, random())
    assert (made.amax((1, 2, 3)) - made.amin((1, 2, 3)) < 0.6).all()


def test_blur_is_the_mean_of_blocks_for_blocks():
    blocks = torch.rand(2, 1, 2, 2).repeat_interleave(4, -1).repeat_interleave(4, -2)
    noisy = blocks + torch.tensor([0.1, -0.1]).repeat(4)
    made = Blur(factor=4)(noisy)
    torch.testing.assert_close(made, Blur(factor=4)(blocks), atol=0.05, rtol=0)
    assert (made - noisy).abs().max() > 0.05
    flat = torch.full((1, 3, 32, 32), 0.3)
    torch.testing.assert_close(Blur()(flat), flat)


def test_random_blur_blurs_each_differently():
    given = images(50, size=16)
    strength = (RandomBlur()(given, random()) - given).abs().mean((1, 2, 3))
    assert strength.min() < 1e-6 and strength.max() > 0.1


def test_affine_without_settings_changes_nothing():
    torch.testing.assert_close(Affine()(images(), random()), images(), atol=1e-5, rtol=0)


def test_rotation_turns_by_at_most_the_angle():
    point = torch.zeros(200, 1, 33, 33)
    point[:, :, 16, 28] = 1  # right of the middle
    made = Affine(rotate=30)(point, random())
    places = made.flatten(1).argmax(1)
    y, x = places // 33 - 16, places % 33 - 16
    angle = torch.atan2(y.float(), x.float()) * 180 / math.pi
    assert angle.abs().max() < 34 and angle.max() > 20 and angle.min() < -20
    assert ((x**2 + y**2).float().sqrt() - 12).abs().max() < 1.5


def test_affine_shift_moves_by_at_most_its_part():
    point = torch.zeros(200, 1, 21, 21)
    point[:, :, 10, 10] = 1
    made = Affine(shift=0.2)(point, random()).flatten(1).argmax(1)
    assert (made % 21 - 10).abs().max() in (4, 5) and (made // 21 - 10).abs().max() in (4, 5)


def test_color_by_hand():
    gray = torch.full((8, 3, 4, 4), 0.4)
    torch.testing.assert_close(Color(contrast=0.5, saturation=0.5, hue=0.3)(gray, random()), gray)
    lighter = Color(brightness=0.5)(gray, random())
    assert (lighter >= 0.2 - 1e-6).all() and (lighter <= 0.6 + 1e-6).all()
    assert len(lighter[:, 0, 0, 0].unique()) == 8
    red = torch.tensor([1.0, 0, 0]).view(1, 3, 1, 1).repeat(100, 1, 2, 2)
    turned = Color(hue=0.5)(red, random())
    assert len(turned.argmax(1)[:, 0, 0].unique()) == 3  # red became green and blue too


def test_chain_and_none():
    assert augmentation("none") is None
    chain = augmentation("flip:horizontal=1+blur")
    torch.testing.assert_close(chain(images(), random()), Blur()(images().flip(-1)))


@pytest.mark.parametrize("wrong", ["mirror", "flip:horizontal=2", "crop:size=3"])
def test_mistakes(wrong):
    with pytest.raises(SettingsError):
        augmentation(wrong)
