"""Distributions do not check values while a model is traced, and do again afterwards."""

import pytest
import torch
from torch.distributions import Categorical, Distribution, Independent, Normal

from rekindle.graph.validation import unvalidated

BAD = torch.tensor([-1.0])


@pytest.fixture(autouse=True)
def switched_on():
    """The first torch.compile of a process switches checks off for good."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(True)
    yield
    Distribution.set_default_validate_args(before)


def checks():
    with pytest.raises(ValueError, match="constraint"):
        Normal(0.0, BAD)


def test_nothing_is_checked_whenever_and_however_a_distribution_was_built():
    strict, old = Normal(0.0, torch.ones(1), validate_args=True), Normal(0.0, torch.ones(1))
    checks()
    with unvalidated():
        built = Normal(0.0, BAD, validate_args=True), Independent(Normal(0.0, BAD), 1), Categorical(logits=BAD)
        for each in (strict, old, *built, built[0].expand((2,))):
            each.log_prob(torch.full((1,), torch.nan)) if each is not built[2] else each.sample()
    checks()
    for each in (strict, old, built[0]):
        with pytest.raises(ValueError, match="value"):
            each.log_prob(torch.full((1,), torch.nan))


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
@pytest.mark.parametrize("default", [True, False])
def test_the_switch_is_what_it_was_also_after_an_error(default, error):
    class Own(Normal):
        _validate_args = True

    Distribution.set_default_validate_args(default)
    with pytest.raises(error), unvalidated():
        assert not Own(0.0, BAD)._validate_args
        raise error
    assert vars(Distribution)["_validate_args"] is default and vars(Own)["_validate_args"] is True


def test_what_somebody_sets_meanwhile_stays():
    with unvalidated():
        Distribution.set_default_validate_args(False)
    assert vars(Distribution)["_validate_args"] is False
