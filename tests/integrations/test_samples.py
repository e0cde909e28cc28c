"""Samples of a host's data, and generators that do not notice."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import rekindle as rk
from rekindle.errors import KeeperError
from rekindle.integrations.samples import Samples, can_be_looked_at, example_of, refuse_streams, refuse_unseen_data


class Noisy:
    """A dataset that draws from every generator there is."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, place):
        return {"x": torch.tensor([float(place), random.random() + np.random.rand()]) + torch.rand(2) * 0}


class OwnGenerator:
    def __init__(self):
        self.draws = torch.Generator().manual_seed(0)

    def __call__(self, samples):
        return {"x": torch.stack([each["x"] for each in samples]), "noise": torch.rand(2, generator=self.draws)}


def states():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


def test_nobody_notices_that_an_example_was_taken():
    collate = OwnGenerator()
    loader = DataLoader(Noisy(5), batch_size=3, shuffle=True, collate_fn=collate)
    before, own = states(), collate.draws.get_state()
    example = example_of(loader, torch.device("cpu"))
    assert example["x"][:, 0].tolist() == [0.0, 1.0]
    assert states() == before and torch.equal(collate.draws.get_state(), own)


def test_a_model_that_a_collator_keeps_is_not_copied():
    class Inner(OwnGenerator):
        def __init__(self):
            super().__init__()
            self.model = torch.nn.Linear(1, 1)

        def __call__(self, samples):
            return {**super().__call__(samples), "model": self.model}

    class Wrapper:  # as the Trainer wraps a collator to leave columns out
        def __init__(self, collate):
            self.collate = collate

        def __call__(self, samples):
            return self.collate(samples)

    inner = Inner()
    own = inner.draws.get_state()
    (batch,) = Samples(DataLoader(Noisy(2), collate_fn=Wrapper(inner)), size=2)
    assert batch["model"] is inner.model and torch.equal(inner.draws.get_state(), own)


def test_methods_that_look_at_data_cannot_do_with_a_stream():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    refuse_unseen_data(DataLoader(Stream()), [])
    refuse_unseen_data(DataLoader(Noisy(2)), [rk.Dash()])
    with pytest.raises(KeeperError, match="dash, which looks at data"):
        refuse_unseen_data(DataLoader(Stream()), [rk.Dash()])


def test_batches_are_spread_over_the_data_and_the_same_each_time():
    found = Samples(DataLoader(Noisy(100)), size=2, batches=5)
    places = [[int(x[0]) for x in batch["x"]] for batch in found]
    assert places == [[0, 10], [20, 30], [40, 50], [60, 70], [80, 90]]
    assert [[int(x[0]) for x in batch["x"]] for batch in found] == places


def test_few_samples_are_each_taken_once():
    found = [[int(x[0]) for x in batch["x"]] for batch in Samples(DataLoader(Noisy(3)), size=2, batches=9)]
    assert found == [[0, 1], [2]]
    assert example_of(DataLoader(Noisy(1)), None)["x"].shape == (1, 2)


class Stream(IterableDataset):
    def __iter__(self):
        return iter([torch.zeros(2)])


@pytest.mark.parametrize("loader", [DataLoader(Stream()), DataLoader(Noisy(0), sampler=[]), [torch.zeros(2)]])
def test_a_stream_and_what_is_no_loader_are_not_looked_at(loader):
    assert not can_be_looked_at(loader)
    with pytest.raises(KeeperError, match="example= for fire"):
        refuse_streams(loader, [rk.Fire()])


def test_a_collator_that_cannot_be_copied_asks_for_an_example():
    class Stubborn(OwnGenerator):
        def __deepcopy__(self, memo):
            raise TypeError("no copies")

    with pytest.raises(KeeperError, match="no copies"):
        example_of(DataLoader(Noisy(3), collate_fn=Stubborn()), None)
