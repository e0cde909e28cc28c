"""The checks of per-step methods and recyclers can fail: a fault is caught by the check that is about it."""

import itertools
import re

import pytest
import torch

import rekindle as rk
from rekindle.methods import MethodState, Multiply, per_step_method, recycler_method
from rekindle.testing import CHECKS, ZOO, check_method

MEMBER = ZOO["mlp"]


class State(MethodState):
    """Halves the first trained weight in its second step, and remembers how often it was asked."""

    def __init__(self, settings, context):
        self.settings, self.context, self.count = settings, context, 0
        self.name, self.target = next(iter(context.trained().items()))

    def after_step(self, step):
        self.count += 1
        if self.settings.factor == 1 or self.count != 5:
            return []
        return [Multiply([self.target], [torch.tensor(self.settings.factor)])]

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


@per_step_method(rk.L2.card, identity={"factor": 1.0})
class Halve:
    """A method without fault; those below have one each."""

    factor: float = 0.5
    state = State

    def init(self, context):
        return self.state(self, context)


class Forgets(Halve):
    class state(State):
        def state_dict(self):
            return {"count": 0}


class NeverActs(Halve):
    class state(State):
        def after_step(self, step):
            return []


class NotTheIdentity(Halve):
    class state(State):
        def after_step(self, step):
            return [Multiply([self.target], [torch.tensor(0.9)])]


class DrawsGlobally(Halve):
    times = itertools.count()

    class state(State):
        def after_step(self, step):
            factor = 1.0 if self.settings.factor == 1 else 0.5 + 0.1 * next(DrawsGlobally.times) / 100
            return [Multiply([self.target], [torch.tensor(factor)])]


class TouchesFrozen(Halve):
    class state(State):
        def after_step(self, step):
            first = next(iter(self.context.model.parameters()))
            return [] if self.settings.factor == 1 else [Multiply([first], [torch.tensor(0.5)])]


class LooksAtRoles(Halve):
    scan_is_enough = True

    class state(State):
        def __init__(self, settings, context):
            super().__init__(settings, context)
            self.name = next((one.tensor for one in context.graph.weights if one.role == "head"), self.name)
            self.target = context.tensors[self.name]


class HidesItsNeed(Halve):
    class state(State):
        def __init__(self, settings, context):
            super().__init__(settings, context)
            if not context.graph.traced:
                raise rk.errors.KeeperError(expected="example=", got="none", fix="pass example=")


class WritesInItsPenalty(Halve):
    class state(State):
        def penalty(self):
            if self.settings.factor != 1:
                self.target.data.mul_(0.99)


class LeavesAHook(Halve):
    class state(State):
        def __init__(self, settings, context):
            super().__init__(settings, context)
            context.model.register_forward_hook(lambda *_: None)


CAUGHT_BY = {
    Forgets: "check_a_saved_state_goes_on_bit_equal",
    NeverActs: "check_it_acts",
    NotTheIdentity: "check_identity_changes_nothing",
    DrawsGlobally: "check_the_seed_decides_and_nothing_else",
    TouchesFrozen: "check_frozen_parameters_stay",
    LooksAtRoles: "check_a_scan_is_enough_where_it_says_so",
    HidesItsNeed: "check_it_says_what_it_needs",
    WritesInItsPenalty: "check_asking_for_the_penalty_changes_nothing",
    LeavesAHook: "check_no_hook_stays",
}


def broken_by(method):
    with pytest.raises(AssertionError) as caught:
        check_method(method, [MEMBER])
    return re.findall(r": (check_\w+): ", str(caught.value))


def test_a_good_method_passes():
    check_method(Halve(), [MEMBER, ZOO["cnn_bn"]])


@pytest.mark.parametrize("bad", CAUGHT_BY)
def test_a_bad_method_is_caught(bad):
    assert CAUGHT_BY[bad] in broken_by(bad())


def test_every_check_of_per_step_methods_has_caught_something():
    assert set(CAUGHT_BY.values()) == {check.__name__ for check in CHECKS["per-step"]}


class Chooses(MethodState):
    def __init__(self, settings, context):
        self.settings, self.watch = settings, context.watch

    def watches(self, step):
        return True

    def choose(self, step):
        if self.settings.off:
            return {}
        return {name: seen.argmin()[None] for name, seen in self.watch.seen("magnitude").items()}


@recycler_method(rk.Redo.card, identity={"off": True}, observes=("magnitude",))
class Lowest:
    """A recycler without fault: the unit that says least, in every step."""

    off: bool = False
    state = Chooses

    def init(self, context):
        return self.state(self, context)


class CountsEvaluation(Lowest):
    class state(Chooses):
        def __init__(self, settings, context):
            super().__init__(settings, context)
            self.passes = 0
            context.model.register_forward_hook(self.count)

        def count(self, *_):
            self.passes += 1

        def choose(self, step):
            return {} if self.settings.off or self.passes > 4 else super().choose(step)


def test_recyclers():
    check_method(Lowest(), [MEMBER, ZOO["conv1d"]])
    assert "check_evaluation_is_not_counted" in broken_by(CountsEvaluation())


def test_models_by_name():
    check_method(Lowest(), ["mlp"])
    with pytest.raises(rk.errors.SettingsError, match="a zoo model: mlp"):
        check_method(Lowest(), ["mlq"])


def test_where_there_is_nothing_to_recycle_refusing_is_right():
    members = [member for member in ZOO.values() if member.name in ("tied_autoencoder", "mixer", "llama")]
    check_method("redo:period=1,threshold=0.9", members)
