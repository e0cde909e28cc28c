"""Normalization, measured and undone by hand."""

import numpy as np
import pytest
import torch

from rekindle.errors import RekindleError
from rekindle.lab.data.dataset import Dataset, Normalize, examples_of, measure_normalize
from rekindle.training.examples import Examples
from rekindle.training.tokens import Tokens


def images(dtype=torch.uint8):
    values = torch.randint(256, (20, 3, 4, 5), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    values[:, 1] //= 4
    return values if dtype == torch.uint8 else values.float() / 255


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_measured_on_a_set_each_channel_has_mean_zero_and_deviation_one(dtype):
    normalize = measure_normalize(images(dtype))
    whole = normalize(images(torch.float32)).transpose(0, 1).flatten(1)
    assert whole.mean(1).tolist() == pytest.approx([0, 0, 0], abs=1e-5)
    assert whole.std(1, correction=0).tolist() == pytest.approx([1, 1, 1], abs=1e-4)


def test_a_constant_channel_does_not_divide_by_zero():
    normalize = measure_normalize(torch.full((4, 1, 2, 2), 0.5))
    assert torch.isfinite(normalize(torch.rand(4, 1, 2, 2))).all()


def test_each_channel_by_its_own_numbers_and_the_argument_stays():
    x = torch.ones(2, 3, 1, 1)
    found = Normalize((0.0, 0.5, 1.0), (1.0, 0.5, 2.0))(x)
    assert found[0].flatten().tolist() == [1.0, 1.0, 0.0] and (x == 1).all()
    assert Normalize((0.0, 0.6), (1.0, 3.0)).of_gray() == Normalize((0.3,), (2.0,))


def test_other_training_examples_of_the_same_set():
    def some(count):
        return Examples(torch.zeros(count, 2), torch.zeros(count, dtype=torch.long))

    data = Dataset("mine", some(5), some(3), 2)
    other = data.with_train(some(1))
    assert (len(other.train), len(other.test), other.name, other.classes) == (1, 3, "mine", 2)
    assert len(data.train) == 5 and data.shape == (2,)


def test_tokens_are_a_data_set_but_no_examples():
    tokens = Tokens({"text": np.arange(9)}, context=4)
    data = Dataset("text", tokens, tokens, classes=9)
    assert data.shape == (4,) and data.with_train(tokens.to("cpu")).classes == 9
    with pytest.raises(RekindleError, match="streams of tokens: text"):
        examples_of(data.train)
