"""Learning rates that drop, and those that only come down."""

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    StepLR,
)

from rekindle.methods.rates import Rates


def moves(make, steps, ratio=0.5, every=1):
    """The steps at which the rate has dropped, and at which it is back; the schedule moves every so many steps."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    rates, schedule = Rates([optimizer], ratio), make(optimizer)
    dropped, back = [], []
    for step in range(steps):
        down, up = rates.moved()
        assert (down | up) <= {id(weight)}
        dropped += [step] if down else []
        back += [step] if up else []
        optimizer.step()
        if (step + 1) % every == 0:
            schedule.step()
    return dropped, back


SLOW = {
    "cosine": lambda o: CosineAnnealingLR(o, 20),
    "restarts": lambda o: CosineAnnealingWarmRestarts(o, 10),
    "linear": lambda o: LinearLR(o, 1.0, 0.0, 20),
    "exponential": lambda o: ExponentialLR(o, 0.8),
    "one cycle": lambda o: OneCycleLR(o, 0.1, total_steps=40),
    "warm-up": lambda o: LambdaLR(o, lambda step: min(1.0, (step + 1) / 10)),
}


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", SLOW)
def test_what_comes_down_slowly_is_no_drop(name, every):
    assert moves(SLOW[name], 30, every=every) == ([], [])


def test_steps_are_drops():
    assert moves(lambda o: MultiStepLR(o, [4, 9], gamma=0.1), 15) == ([4, 9], [])
    assert moves(lambda o: StepLR(o, 5, gamma=0.5), 12) == ([5, 10], [])
    assert moves(lambda o: StepLR(o, 5, gamma=0.6), 12) == ([], [])
    assert moves(lambda o: StepLR(o, 5, gamma=0.6), 12, ratio=0.6) == ([5, 10], [])


def test_a_warm_up_that_begins_again_takes_the_drop_back():
    assert moves(lambda o: LambdaLR(o, lambda step: min(1.0, (step % 20 + 1) / 10)), 45) == ([20, 40], [28])


def test_switched_off_it_sees_nothing():
    assert moves(lambda o: StepLR(o, 5), 12, ratio=0.0) == moves(lambda o: StepLR(o, 5), 12, ratio=None) == ([], [])


def test_groups_drop_apart_and_new_ones_may_come():
    one, two, three = (torch.nn.Parameter(torch.zeros(1)) for _ in range(3))
    first = torch.optim.SGD([{"params": [one]}, {"params": [two]}], lr=0.1)
    rates = Rates([first], 0.5)
    rates.moved()
    first.add_param_group({"params": [three], "lr": torch.tensor(0.2)})
    assert rates.moved() == (frozenset(), frozenset())
    first.param_groups[1]["lr"] = 0.0
    assert rates.moved() == ({id(two)}, frozenset())
    first.param_groups[2]["lr"] = torch.tensor(0.02)
    assert rates.moved() == ({id(three)}, frozenset())
