"""The user's data as batches: what is in them, in which order, and what is left as it was."""

import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from rekindle.comparison import batches as module
from rekindle.comparison.batches import BatchesError, TrainingBatches, digest, held_out, own_generators

PAIR = (torch.arange(14.0).reshape(7, 2), torch.arange(7))
LISTED = [(torch.full((n + 1, 2), float(n)), torch.full((n + 1,), n)) for n in range(4)]


def labels(found):
    return [label for _, targets in found for label in targets.tolist()]


def test_of_tensors_every_epoch_has_each_example_at_most_once_and_inputs_stay_with_their_targets():
    made = TrainingBatches(PAIR, batch_size=3)
    assert (made.each, made.size) == (2, 3)
    found = list(made.batches(seed=0, steps=6))
    assert all(len(targets) == 3 and torch.equal(inputs, PAIR[0][targets]) for inputs, targets in found)
    epochs = [labels(found[n : n + 2]) for n in (0, 2, 4)]
    assert all(max(Counter(epoch).values()) == 1 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3, "each epoch in an order of its own"


def test_given_batches_keep_what_is_in_them_and_change_places():
    made = TrainingBatches(LISTED)
    assert (made.each, made.size) == (4, 1)
    found = [int(targets[0]) for _, targets in made.batches(seed=1, steps=8)]
    assert sorted(found[:4]) == sorted(found[4:]) == [0, 1, 2, 3] and found[:4] != found[4:]


@pytest.mark.parametrize("data", [PAIR, LISTED], ids=["tensors", "batches"])
def test_one_seed_one_order_whoever_asks(data):
    orders = [labels(TrainingBatches(data, batch_size=2).batches(seed, 9)) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert (
        labels(TrainingBatches(data, batch_size=2).batches(0, 4)) == orders[0][: len(orders[0]) * 4 // 9]
        or data is LISTED
    )


def test_plain_is_the_given_order_and_first_its_first():
    for data, size in ((PAIR, 3), (LISTED, None)):
        made = TrainingBatches(data, batch_size=size or 256)
        found = list(made.plain())
        assert labels(found) == ([0, 1, 2, 3, 4, 5] if data is PAIR else [0, 1, 1, 2, 2, 2, 3, 3, 3, 3])
        assert all(torch.equal(a, b) for a, b in zip(made.first, found[0], strict=True))


def test_no_more_is_taken_than_needed():
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield LISTED[0]

    assert TrainingBatches(endless(), most=3).each == 3 and len(taken) <= 4


def test_test_data_is_all_of_it_in_order(monkeypatch):
    monkeypatch.setattr(module, "EVALUATED", 3)
    found = held_out(PAIR)
    assert [len(targets) for _, targets in found] == [3, 3, 1] and labels(found) == list(range(7))
    assert labels(held_out(LISTED)) == labels(LISTED)


@pytest.mark.parametrize("wrong", [(PAIR[0], PAIR[1][:3]), (PAIR[0][:0], PAIR[1][:0]), (torch.tensor(1.0), PAIR[1])])
def test_tensors_that_do_not_fit_are_refused(wrong):
    for use in (TrainingBatches, held_out):
        with pytest.raises(BatchesError, match="of the same length, at least 1"):
            use(wrong)


def test_the_digest_tells_content_shape_and_type_apart():
    same = [digest([torch.ones(4)]), digest([torch.ones(8)[::2]]), digest([torch.ones(4, requires_grad=True)])]
    assert len(set(same)) == 1
    others = [
        torch.ones(2, 2),
        torch.ones(4).double(),
        torch.tensor([1.0, 1, 1, 2]),
        torch.ones(4, dtype=torch.bfloat16),
    ]
    assert len({same[0], *(digest([other]) for other in others), digest([torch.ones(4), "word"])}) == 6
    assert TrainingBatches(PAIR).digest == TrainingBatches(PAIR, batch_size=2).digest != TrainingBatches(LISTED).digest


def test_generators_are_seeded_inside_and_put_back():
    source = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(*PAIR), shuffle=True, generator=source)

    def states():
        return torch.get_rng_state(), source.get_state(), random.getstate(), np.random.get_state()[1].tolist()

    def draws():
        return float(torch.rand(())), random.random(), float(np.random.rand()), [int(y) for _, y in loader]

    before, found = states(), []
    for seed, reason in ((0, "a"), (0, "a"), (1, "a"), (0, "b")):
        with own_generators(seed, reason, loader):
            found.append(draws()[:3])
    with pytest.raises(KeyError), own_generators(0, "a", loader):
        draws()
        raise KeyError
    assert found[0] == found[1] and len({each for each in found}) == 3
    after = states()
    assert torch.equal(before[0], after[0]) and torch.equal(before[1], after[1]) and before[2:] == after[2:]
