"""The checks of methods that are optimizers can fail."""

import re

import pytest
import torch

import rekindle as rk
from rekindle.methods import optimizer_method
from rekindle.testing import CHECKS, ZOO, check_method

MEMBER = ZOO["mlp"]


class Signs(torch.optim.Optimizer):
    """Moves by the sign of an average of gradients."""

    state_begins_at = {"average": 0.0}

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                average.mul_(0.9).add_(p.grad)
                p.sub_(group["lr"] * average.sign())


@optimizer_method(rk.Muon.card, identity={"lr": 0.0})
class Sign:
    """An optimizer without fault; those below have one each."""

    lr: float = 1e-3

    def build(self, model, example=None, *, graph=None):
        return Signs([p for p in model.parameters() if p.requires_grad], self.lr)


class MissesSome(Sign):
    def build(self, model, example=None, *, graph=None):
        return Signs(list(model.parameters())[1:], self.lr)


class MovesAnyway(Sign):
    def build(self, model, example=None, *, graph=None):
        return Signs(model.parameters(), self.lr + 0.01)


class Forgets(Sign):
    def build(self, model, example=None, *, graph=None):
        made = super().build(model)
        made.load_state_dict = lambda state: None
        return made


class MovesFrozen(Sign):
    def build(self, model, example=None, *, graph=None):
        made = super().build(model)
        first = next(model.parameters())
        made.register_step_post_hook(lambda *_: first.data.mul_(1 if self.lr == 0 else 0.9))
        return made


class Breaks(Sign):
    def build(self, model, example=None, *, graph=None):
        class Later(Signs):
            state_begins_at = {"average": float("nan")}

            @torch.no_grad()
            def step(self, closure=None):
                super().step(closure)
                for p, own in self.state.items():
                    p.sub_(1e-9 * own["average"])

        return Later([p for p in model.parameters() if p.requires_grad], self.lr)


CAUGHT_BY = {
    MissesSome: "check_it_trains_every_parameter_once",
    MovesAnyway: "check_identity_changes_nothing",
    Forgets: "check_a_saved_state_goes_on_bit_equal",
    MovesFrozen: "check_frozen_parameters_stay",
    Breaks: "check_its_state_is_known_or_refused",
}


def test_a_good_optimizer_passes():
    check_method(Sign(), [MEMBER, ZOO["cnn_bn"]])


@pytest.mark.parametrize("bad", CAUGHT_BY)
def test_a_bad_one_is_caught(bad):
    with pytest.raises(AssertionError) as caught:
        check_method(bad(), [MEMBER])
    assert CAUGHT_BY[bad] in re.findall(r": (check_\w+): ", str(caught.value))


def test_every_check_has_caught_something():
    assert set(CAUGHT_BY.values()) == {check.__name__ for check in CHECKS["optimizer"]}
