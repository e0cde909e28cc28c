"""Batches of examples, against plain indexing."""

import pytest
import torch

from rekindle.training.examples import Examples, as_float, random_order


def images(count=6):
    values = torch.randint(256, (count, 1, 2, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Examples(values, torch.arange(count))


WHICH = [slice(1, 4), torch.tensor([5, 0, 0]), torch.arange(6) % 2 == 0, torch.tensor([], dtype=torch.long)]


@pytest.mark.parametrize("which", WHICH, ids=["slice", "indices", "mask", "none"])
def test_some_of_them_are_what_indexing_gives(which):
    examples = images()
    part = examples.take(which)
    assert torch.equal(part.inputs, examples.inputs[which]) and torch.equal(part.labels, examples.labels[which])
    assert len(part) == len(examples.labels[which])
    assert torch.equal(examples.batch(which), examples.inputs[which].float() / 255)


def test_a_slice_is_a_view_and_indices_are_a_copy():
    examples = images()
    assert examples.take(slice(2, 4)).inputs.data_ptr() == examples.inputs[2:].data_ptr()
    copy = examples.take(torch.tensor([2]))
    copy.inputs.fill_(0)
    assert examples.inputs[2].any()


def test_changed_then_augmented_then_normalized():
    examples = Examples(torch.ones(2, 3), torch.zeros(2, dtype=torch.long), lambda x: x + 1, lambda x: x * 10)
    assert examples.batch(slice(2)).unique().tolist() == [20.0]
    assert examples.batch(slice(2), augment=lambda x: x * x).unique().tolist() == [40.0]
    assert examples.take(slice(1)).batch(slice(1)).unique().tolist() == [20.0], "a part keeps its functions"


def test_shape_is_what_a_network_sees():
    assert images().shape == (1, 2, 3)
    flat = Examples(images().inputs, images().labels, change=lambda x: x.flatten(1))
    assert flat.shape == (6,)


def test_stored_values_are_not_changed():
    examples = images()
    before = examples.inputs.clone()
    examples.batch(slice(6))
    assert torch.equal(examples.inputs, before) and examples.inputs.dtype == torch.uint8
    floats = torch.rand(3)
    assert as_float(floats) is floats


def test_the_device_of_all():
    moved = images().to("meta")
    assert moved.inputs.is_meta and moved.labels.is_meta


def test_an_epoch_shows_each_example_once_in_a_new_order():
    orders = [random_order(10, 2, 5, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    assert all(sorted(order.flatten().tolist()) == list(range(10)) for order in orders)
    assert not torch.equal(*orders)
    assert random_order(10, 2, 4, torch.Generator()).shape == (2, 4)


def test_pairs_in_order_are_all_examples():
    given = images()
    parts = list(given.in_order(4))
    assert torch.equal(torch.cat([labels for _, labels in parts]), given.labels)
    assert torch.equal(torch.cat([inputs for inputs, _ in parts]), given.batch(slice(None)))
    which = torch.tensor([2, 0])
    inputs, labels = given.pair(which)
    assert torch.equal(inputs, given.batch(which)) and torch.equal(labels, given.labels[which])
