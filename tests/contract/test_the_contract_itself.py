"""The checks can fail: methods that break one promise each are caught."""

import dataclasses
from typing import ClassVar

import pytest
import torch

from rekindle.edits.edit import Edit, Edits
from rekindle.methods.one_shot.full_reset import FullReset
from rekindle.testing import ZOO, check_method

MEMBER = [ZOO["mlp"]]


@dataclasses.dataclass(frozen=True)
class Bad:
    """A base for methods with one fault."""

    key: ClassVar[str] = "full_reset"
    card: ClassVar = FullReset.card
    identity: ClassVar[dict] = {"off": True}
    off: bool = False

    def op(self, old, name):
        return old * 0.5

    def plan(self, graph, evidence, seed):
        if self.off:
            return Edits()
        names = [weight.tensor for weight in graph.weights]
        return Edits(tuple(Edit(name, lambda old, name=name: self.op(old, name), "bad") for name in names))


class UsesTheGlobalGenerator(Bad):
    def op(self, old, name):
        return old + torch.rand(old.shape)


class NotTheIdentity(Bad):
    identity: ClassVar[dict] = {"off": False}


class BreaksOnZero(Bad):
    def op(self, old, name):
        return old / old.norm()


class WritesItself(Bad):
    def plan(self, graph, evidence, seed):
        planned = super().plan(graph, evidence, seed)
        first = planned.edits[:1]
        spoil = [dataclasses.replace(e, op=lambda old: old.mul_(0.5)) for e in first]
        return Edits(tuple(spoil) + planned.edits[1:])


class NoCard(Bad):
    card: ClassVar = dataclasses.replace(FullReset.card, deviations=())


def test_a_good_method_passes():
    check_method(Bad(), MEMBER)


@pytest.mark.parametrize("bad", [UsesTheGlobalGenerator, NotTheIdentity, BreaksOnZero, WritesItself, NoCard])
def test_a_bad_method_is_caught(bad):
    with pytest.raises(AssertionError):
        check_method(bad(), MEMBER)


def test_settings_by_name_over_the_zoo():
    check_method("shrink_perturb:shrink=0.3", [ZOO["mlp"], ZOO["vit_fused"]])
