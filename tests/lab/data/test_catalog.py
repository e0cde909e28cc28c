"""Data by spec string."""

import numpy as np
import pytest
import torch

from rekindle.errors import RekindleError, SettingsError
from rekindle.lab.data.catalog import EMBEDDED, check, load
from rekindle.lab.data.digits import load_digits
from rekindle.lab.data.store import VARIABLE, write_stored


def test_the_digits_are_those_of_their_loader():
    data, plain = load("digits:test_fraction=0.25,division=3"), load_digits(0.25, 3)
    assert torch.equal(data.train.inputs, plain.train_images) and torch.equal(data.test.labels, plain.test_labels)
    assert data.classes == 10 and data.shape == (1, 8, 8)
    assert not torch.equal(data.train.inputs, load("digits:test_fraction=0.25").train.inputs)


@pytest.mark.parametrize("name", EMBEDDED)
def test_only_the_synthetic_set_follows_the_seed(name):
    one, two = load(name, seed=1), load(name, seed=2)
    assert torch.equal(one.train.inputs, two.train.inputs) == (name != "synthetic")


def test_other_names_are_folders_and_size_brings_images_to_another_size(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    images = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 1), dtype=np.uint8)
    labels = np.arange(6) % 3
    for part, count in (("train", 6), ("test", 2)):
        write_stored(tmp_path / "mine", part, images[:count], labels[:count])
    assert load("mine").shape == (1, 4, 4) and load("mine:size=8").shape == (1, 8, 8) and load("mine").classes == 3
    with pytest.raises(RekindleError, match="not_mine"):
        load("not_mine")


@pytest.mark.parametrize(
    "spec", ["", "../secrets", "a/b", "a b", "cifar10:width=3", "cifar10:size=3,depth=2", "a:size=3,context=4"]
)
def test_what_is_no_plain_name_is_refused(spec):
    with pytest.raises(SettingsError, match="the plain name of a folder"):
        check(spec)


def test_names():
    names = ("digits", "synthetic:signal=2", "cifar10", "cifar10:size=16", "tiny-imagenet_200")
    assert [check(name) for name in names] == ["digits", "synthetic", "cifar10", "cifar10", "tiny-imagenet_200"]
    assert check("wikitext:context=64,tokens=60000,windows=9,vocabulary=50257") == "wikitext"
