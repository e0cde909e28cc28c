import numpy as np
import pytest
import torch

from rekindle.errors import RekindleError
from rekindle.lab.data.subsets import fraction, hold_out, noisy_labels, of_classes, shuffled
from rekindle.training.examples import Examples
from rekindle.training.tokens import Tokens


def numbered(count=100, classes=10):
    return Examples(torch.arange(count).float()[:, None], torch.arange(count) % classes)


def test_shuffled_keeps_pairs_and_depends_on_the_seed():
    one, same, other = shuffled(numbered(), 1), shuffled(numbered(), 1), shuffled(numbered(), 2)
    assert torch.equal(one.inputs, same.inputs) and not torch.equal(one.inputs, other.inputs)
    assert sorted(one.inputs.flatten().tolist()) == list(range(100))
    assert torch.equal(one.inputs.flatten().long() % 10, one.labels)


def test_fraction_counts():
    assert len(fraction(numbered(), 0.25, 0)) == 25
    assert len(fraction(numbered(), 0.001, 0)) == 1
    whole = numbered()
    assert fraction(whole, 1.0, 0) is whole


def test_hold_out_divides():
    train, held = hold_out(numbered(), 0.1, 3)
    assert (len(train), len(held)) == (90, 10)
    assert sorted([*train.inputs.flatten().tolist(), *held.inputs.flatten().tolist()]) == list(range(100))
    assert hold_out(numbered(), 0.0, 3)[1] is None


def test_of_classes_keeps_labels():
    assert of_classes(numbered(), [3, 7]).labels.unique().tolist() == [3, 7]


def test_noise_changes_the_asked_part_and_nothing_else():
    clean = numbered(1000)
    noisy = noisy_labels(clean, 0.5, 10, seed=0)
    changed = int((noisy.labels != clean.labels).sum())
    assert 400 < changed <= 500  # one in ten of the 500 drawn ones is right by chance
    assert noisy.inputs is clean.inputs and torch.equal(clean.labels, numbered(1000).labels)
    assert torch.equal(noisy.labels, noisy_labels(clean, 0.5, 10, seed=0).labels)
    assert noisy_labels(clean, 0.0, 10, seed=0) is clean


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: fraction(numbered(), 0.0, 0),
        lambda: fraction(numbered(), 1.1, 0),
        lambda: hold_out(numbered(), 1.0, 0),
        lambda: noisy_labels(numbered(), -0.1, 10, 0),
    ],
)
def test_out_of_range(wrong):
    with pytest.raises(RekindleError, match="fraction"):
        wrong()


def test_tokens_pass_where_nothing_is_asked_for_and_are_refused_otherwise():
    tokens = Tokens({"text": np.arange(100)}, context=4)
    assert fraction(tokens, 1, 0) is noisy_labels(tokens, 0, 10, 0) is hold_out(tokens, 0, 0)[0] is tokens
    for ask in (
        lambda: shuffled(tokens, 0),
        lambda: fraction(tokens, 0.5, 0),
        lambda: hold_out(tokens, 0.5, 0),
        lambda: of_classes(tokens, [1]),
        lambda: noisy_labels(tokens, 0.5, 10, 0),
    ):
        with pytest.raises(RekindleError, match="streams of tokens: text"):
            ask()
