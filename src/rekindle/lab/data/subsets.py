"""Less data, other labels: fractions, classes, label noise, hold-out. All seeded by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from rekindle.errors import RekindleError
from rekindle.lab.data.dataset import examples_of
from rekindle.seeds import generator
from rekindle.training.examples import Examples
from rekindle.training.tokens import Tokens

Data = TypeVar("Data", bound=Examples | Tokens)  # tokens pass where nothing is asked for, and raise otherwise


def shuffled(examples: Examples | Tokens, seed: int) -> Examples:
    """Return the examples in an order that the seed decides."""
    return examples_of(examples).take(torch.randperm(len(examples), generator=generator(seed, "examples", "order")))


def fraction(examples: Data, part: float, seed: int) -> Data | Examples:
    """Return a random part of the examples, at least one; all of them, untouched, for 1.

    Example:
        >>> len(fraction(Examples(torch.zeros(10, 2), torch.arange(10)), 0.25, seed=0))
        2
    """
    if not 0 < part <= 1:
        raise RekindleError(expected="a fraction above 0 and up to 1", got=str(part), fix="take 1 for all examples")
    if part == 1:
        return examples
    order = torch.randperm(len(examples_of(examples)), generator=generator(seed, "examples", "fraction"))
    return examples_of(examples).take(order[: max(1, round(part * len(examples)))])


def hold_out(examples: Data, part: float, seed: int) -> tuple[Data | Examples, Examples | None]:
    """Return what remains to learn from, and a random part for validation; None if that part is 0."""
    if not 0 <= part < 1:
        raise RekindleError(expected="a fraction from 0 to below 1", got=str(part), fix="take 0.1 for a tenth")
    held = round(part * len(examples))
    if held == 0:
        return examples, None
    order = torch.randperm(len(examples_of(examples)), generator=generator(seed, "examples", "validation"))
    return examples_of(examples).take(order[held:].sort().values), examples_of(examples).take(order[:held])


def of_classes(examples: Examples | Tokens, classes: Sequence[int]) -> Examples:
    """Return the examples of some classes; labels stay what they are.

    Example:
        >>> of_classes(Examples(torch.zeros(4, 1), torch.tensor([0, 1, 2, 1])), [1]).labels.tolist()
        [1, 1]
    """
    examples = examples_of(examples)
    return examples.take(torch.isin(examples.labels, torch.tensor(list(classes))))


def noisy_labels(examples: Data, part: float, classes: int, seed: int) -> Data | Examples:
    """Return the examples with a random part of the labels drawn uniformly from all classes.

    A drawn label is right by chance once in `classes` times. Inputs are shared, labels copied.
    """
    if not 0 <= part <= 1:
        raise RekindleError(expected="a fraction between 0 and 1", got=str(part), fix="take 0.5 for half of them")
    count = round(part * len(examples))
    if count == 0:
        return examples
    known, random = examples_of(examples), generator(seed, "labels", "noise")
    which = torch.randperm(len(known), generator=random)[:count]
    labels = known.labels.clone()
    labels[which] = torch.randint(classes, (count,), generator=random)
    return replace(known, labels=labels)
