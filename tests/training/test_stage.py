"""A stage that cannot be trained is refused when it is made."""

import pytest
import torch

from rekindle.errors import RekindleError
from rekindle.training.examples import Examples
from rekindle.training.stage import Stage


def examples(count=3):
    return Examples(torch.zeros(count, 2), torch.zeros(count, dtype=torch.long))


@pytest.mark.parametrize("length", [{}, {"epochs": 1, "steps": 1}, {"epochs": 0}, {"steps": 0}, {"epochs": -1}])
def test_either_epochs_or_steps(length):
    with pytest.raises(RekindleError, match="either epochs or steps, at least 1") as caught:
        Stage("first", examples(), examples(), **length)
    assert "'first'" in caught.value.got


@pytest.mark.parametrize("kind", ["training", "test"])
def test_no_data_is_refused(kind):
    train, test = (examples(0 if name == kind else 3) for name in ("training", "test"))
    with pytest.raises(RekindleError, match=f"{kind} examples in stage 'first'"):
        Stage("first", train, test, epochs=1)


def test_what_a_plain_stage_does():
    stage = Stage("first", examples(), examples(), steps=5)
    assert stage.boundary and stage.active and stage.fresh_optimizer and not stage.rebase
    assert stage.also == {} == stage.rounds
