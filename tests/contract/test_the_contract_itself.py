"""The checks can fail: methods that break a promise are caught, by the check that is about it."""

import dataclasses
import itertools
import re
from typing import ClassVar

import pytest
import torch

from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.graph.modules import tensors_of
from rekindle.methods import one_shot_method
from rekindle.methods.one_shot.full_reset import FullReset
from rekindle.testing import CHECKS, ZOO, check_method
from rekindle.testing.contract import check_on

MEMBER = ZOO["mlp"]


@one_shot_method(FullReset.card, identity={"off": True})
class Halve:
    """A method without fault: every weight is halved. Those below have one fault each."""

    off: bool = False

    def op(self, old):
        return old * 0.5

    def edit(self, name):
        return Edit(name, self.op, "bad")

    def plan(self, graph, evidence, seed):
        return Edits() if self.off else Edits(tuple(self.edit(weight.tensor) for weight in graph.weights))


class UsesTheGlobalGenerator(Halve):
    def op(self, old):
        return old + torch.rand(old.shape)


class NotTheIdentity(Halve):
    identity: ClassVar[dict] = {"off": False}


class BreaksOnZero(Halve):
    def op(self, old):
        return old / old.norm()


class WritesItself(Halve):
    def op(self, old):
        return old.mul_(0.5)


class LooksAtRoles(Halve):
    scan_is_enough: ClassVar[bool] = True

    def plan(self, graph, evidence, seed):
        heads = [weight.tensor for weight in graph.weights if weight.role == "head"]
        return Edits() if self.off else Edits(tuple(map(self.edit, heads)))


class ChangesBeyondItsMask(Halve):
    def edit(self, name):
        return Edit(name, self.op, "bad", touched=lambda old: torch.arange(old.numel()).reshape(old.shape) == 0)


class PlansAnotherChangeEachTime(Halve):
    times: ClassVar = itertools.count(1)

    def edit(self, name):
        factor = 1 / next(self.times)
        return Edit(name, lambda old: old * factor, "bad")


class ForgetsElsewhere(Halve):
    """Its edits name other elements each time that they are asked, so that other moments are cleared than planned."""

    times: ClassVar = itertools.count()

    def edit(self, name):
        asked = next(self.times)

        def touched(old):
            return (torch.arange(old.numel()) % 2 == asked % 2).reshape(old.shape)

        return Edit(name, lambda old: torch.where(touched(old), 0.5 * old, old), "bad", touched=touched)


class BreaksTheNextStep(Halve):
    def op(self, old):
        return old.sign() * 1e30


class LooksAtTheLiveModel(Halve):
    def plan(self, graph, evidence, seed):
        planned = super().plan(graph, evidence, seed)
        return planned if evidence.model is not None else Edits(planned.edits[1:])


class LeavesAHook(Halve):
    def plan(self, graph, evidence, seed):
        if evidence.model is not None:
            evidence.model.register_forward_hook(lambda *_: None)
        return super().plan(graph, evidence, seed)


class SwitchesToEvaluation(Halve):
    def plan(self, graph, evidence, seed):
        if evidence.model is not None:
            evidence.model.eval()
        return super().plan(graph, evidence, seed)


class SkipsWhatIsNotFinite(Halve):
    def plan(self, graph, evidence, seed):
        planned = super().plan(graph, evidence, seed)
        tensors = {} if evidence.model is None else tensors_of(evidence.model)
        bad = {name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()}
        return Edits(tuple(edit for edit in planned.edits if edit.tensor not in bad))


class SkipsWithoutAReason(Halve):
    def plan(self, graph, evidence, seed):
        return super().plan(graph, evidence, seed) + Edits(skips=(Skip(next(iter(graph.parameters)), ""),))


class WritesWhatIsFrozen(Halve):
    def plan(self, graph, evidence, seed):
        for name in evidence.frozen:
            tensors_of(evidence.model)[name].data.mul_(0.5)
        return super().plan(graph, evidence, seed)


class NoDeviationsOnItsCard(Halve):
    card: ClassVar = dataclasses.replace(Halve.card, deviations=())


# For each of them every check that it does not pass, the one that is about its fault first.
CAUGHT_BY = {
    UsesTheGlobalGenerator: [
        "check_same_seed_same_result",
        "check_three_ways_agree",
        "check_degenerate_weights_stay_finite",
        "check_touches_only_what_is_planned",
    ],
    NotTheIdentity: ["check_identity_changes_nothing"],
    BreaksOnZero: ["check_degenerate_weights_stay_finite"],
    WritesItself: [
        "check_touches_only_what_is_planned",
        "check_nan_is_refused",
        "check_a_late_failure_leaves_no_trace",
        "check_undo",
    ],
    ChangesBeyondItsMask: ["check_touches_only_what_is_planned"],
    PlansAnotherChangeEachTime: [
        "check_same_seed_same_result",
        "check_touches_only_what_is_planned",
        "check_three_ways_agree",
        "check_degenerate_weights_stay_finite",
    ],
    ForgetsElsewhere: [
        "check_optimizer_state_begins_again_where_edited",
        "check_touches_only_what_is_planned",
        "check_same_seed_same_result",
        "check_three_ways_agree",
        "check_degenerate_weights_stay_finite",
    ],
    BreaksTheNextStep: ["check_optimizer_state_begins_again_where_edited"],
    LooksAtTheLiveModel: ["check_three_ways_agree"],
    LooksAtRoles: ["check_a_scan_is_enough_where_it_says_so"],
    LeavesAHook: ["check_parameters_keep_their_identity"],
    SwitchesToEvaluation: ["check_parameters_keep_their_identity"],
    SkipsWhatIsNotFinite: ["check_nan_is_refused"],
    SkipsWithoutAReason: ["check_every_parameter_is_told_of"],
    WritesWhatIsFrozen: ["check_frozen_parameters_stay"],
    NoDeviationsOnItsCard: ["check_card"],
}


def broken_by(method):
    with pytest.raises(AssertionError) as caught:
        check_method(method, [MEMBER])
    return re.findall(r": (check_\w+): ", str(caught.value))


def test_a_good_method_passes():
    check_method(Halve(), [MEMBER])


@pytest.mark.parametrize("bad", CAUGHT_BY)
def test_a_bad_method_is_caught(bad):
    assert sorted(broken_by(bad())) == sorted(CAUGHT_BY[bad])


def test_every_check_has_caught_something():
    assert {name for names in CAUGHT_BY.values() for name in names} == {
        "check_card",
        *(check.__name__ for check in CHECKS["one-shot"]),
    }


def test_the_message_names_method_model_check_and_reason_of_every_failure():
    models = [ZOO["mlp"], ZOO["mlp_no_bias"]]
    with pytest.raises(AssertionError) as caught:
        check_method(LeavesAHook(), models)
    assert str(caught.value).splitlines() == [
        f"LeavesAHook(off=False) on {model.name}: check_parameters_keep_their_identity: a hook was left behind"
        for model in models
    ]
    assert isinstance(caught.value.__cause__, AssertionError), "without the first failure's own traceback"
    with pytest.raises(AssertionError, match="^LeavesAHook.* on mlp: check_parameters_keep_their_identity: a hook"):
        check_on(LeavesAHook(), MEMBER)


def test_an_error_that_is_no_assertion_is_named():
    class Raises(Halve):
        scan_is_enough: ClassVar[bool] = True

        def plan(self, graph, evidence, seed):
            raise KeyError("some tensor")

    with pytest.raises(AssertionError) as caught:
        check_on(Raises(), MEMBER)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(CHECKS["one-shot"])
    assert all(line.endswith("KeyError: 'some tensor'") for line in lines)


def test_settings_by_name_over_the_zoo():
    check_method("shrink_perturb:shrink=0.3", [ZOO["mlp"], ZOO["vit_fused"]])
