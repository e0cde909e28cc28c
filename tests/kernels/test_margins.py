"""Margins against the definition, sample by sample."""

import math

import pytest
import torch

from rekindle.kernels.margins import margin


def by_loop(logits, labels):
    found = []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        powers = [math.exp(value) for value in row]
        chances = [power / sum(powers) for power in powers]
        found.append(chances[label] - max(chance for n, chance in enumerate(chances) if n != label))
    return found


def test_every_sample_as_in_the_loop():
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(50) % 4
    assert margin(logits, labels).tolist() == pytest.approx(by_loop(logits, labels))


def test_large_logits_do_not_overflow_and_sure_answers_are_one_apart():
    logits = torch.tensor([[1e4, 0.0, -1e4], [1e4, 0.0, -1e4]])
    assert margin(logits, torch.tensor([0, 1])).tolist() == [1.0, -1.0]
    assert margin(torch.zeros(1, 2), torch.tensor([1], dtype=torch.int32)).tolist() == [0.0]
