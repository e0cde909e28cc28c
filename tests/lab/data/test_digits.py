import pytest
import torch

from rekindle.errors import RekindleError
from rekindle.lab.data.digits import load_digits


def test_all_images_are_there_once():
    digits = load_digits(test_fraction=0.25, seed=3)
    assert len(digits.test_labels) == 449 and len(digits.train_labels) == 1348
    labels = torch.cat([digits.train_labels, digits.test_labels])
    # The counts of each digit as published with the test part of the data set.
    assert torch.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    whole = torch.cat([digits.train_images, digits.test_images])
    again = load_digits(test_fraction=0.5, seed=0)
    other = torch.cat([again.train_images, again.test_images])
    assert torch.equal(whole.flatten(1).sum(1).sort().values, other.flatten(1).sum(1).sort().values)


def test_types_and_range():
    digits = load_digits()
    assert digits.train_images.dtype == torch.float32 and digits.train_labels.dtype == torch.int64
    assert digits.train_images.shape[1:] == (1, 8, 8)
    assert digits.train_images.min() == 0 and digits.train_images.max() == 1


def test_the_seed_decides_the_split():
    first, same, other = load_digits(seed=1), load_digits(seed=1), load_digits(seed=2)
    assert torch.equal(first.train_images, same.train_images)
    assert not torch.equal(first.train_images, other.train_images)


def test_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    load_digits(seed=5)
    assert torch.equal(before, torch.random.get_rng_state())


def test_images_and_labels_belong_together():
    """A nearest neighbor in the training part has the right label for nearly all of the test part."""
    digits = load_digits()
    distance = torch.cdist(digits.test_images.flatten(1), digits.train_images.flatten(1))
    hits = digits.train_labels[distance.argmin(dim=1)] == digits.test_labels
    assert hits.float().mean() > 0.97


@pytest.mark.parametrize("fraction", [-0.1, 0, 1e-9, 1, 1.5])
def test_a_split_needs_two_sides(fraction):
    with pytest.raises(RekindleError, match="test_fraction"):
        load_digits(test_fraction=fraction)
