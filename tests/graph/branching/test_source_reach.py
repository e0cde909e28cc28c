"""What a branch that was not taken may reach, read from its source."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.graph.branching.source_reach import reach_of
from tests.graph.branching.branching_models import CALLED, OPENED, Mlp
from tests.graph.branching.keeping_models import KEEPING


@pytest.mark.parametrize("model", OPENED, ids=lambda cls: cls.__name__)
def test_nothing_inside_of_what_the_other_branch_opens_is_a_group(model):
    built = model()
    taken = torch.rand(3, 6)
    graph = rk.trace(built, taken, strict=False)
    assert not graph.groups and graph.weights
    assert any("may be used in (model): left out" in why for why in graph.uncovered.values())


@pytest.mark.parametrize("model", CALLED, ids=lambda cls: cls.__name__)
def test_what_is_only_called_keeps_its_groups(model):
    graph = rk.trace(model(), torch.rand(3, 6), strict=False)
    assert [group.name for group in graph.groups] == CALLED[model]


def test_code_without_source_may_reach_everything():
    space = {"nn": nn, "Mlp": Mlp}
    exec(
        "class Hidden(nn.Module):\n    def forward(self, x):\n        return self.block(x) if x.sum() > 0 else x", space
    )
    model = space["Hidden"]()
    model.block = Mlp(6, 7)
    assert not reach_of(model).known
    assert not rk.trace(model, torch.rand(3, 6), strict=False).groups


def test_methods_of_a_part_beside_its_forward():
    class Encoder(Mlp):
        def encode(self, x):
            return self.up(x)

    class Root(nn.Module):
        def __init__(self, part):
            super().__init__()
            self.part, self.norm = part, nn.LayerNorm(6)

        def forward(self, x):
            if x.sum() > 0:
                return self.part(x)
            return self.norm(x) + self.part.encode(x)[:, :6]

    assert reach_of(Root(Encoder(6, 7))).exposes("part", Encoder(6, 7), "up.weight")
    assert not reach_of(Root(Encoder(6, 7))).exposes("norm", nn.LayerNorm(6), "weight")


@pytest.mark.parametrize("early", [True, False], ids=["not on this way", "on this way"])
@pytest.mark.parametrize("model", KEEPING, ids=lambda cls: cls.__name__)
def test_what_is_kept_somewhere_takes_the_groups_away(model, early):
    graph = rk.trace(model(early), torch.rand(3, 6), strict=False)
    assert "encoder.a" not in [group.name for group in graph.groups]


def test_settings_and_questions_take_nothing_away():
    class Config:
        def __init__(self):
            self.scale, self.sizes = 2.0, [3, 4]

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.config, self.activation, self.part, self.none = Config(), torch.tanh, Mlp(6, 7), None

        def forward(self, x):
            if self.none is None and self.part is not None and self.part.training is False:
                x = self.activation(self.part(x)) * self.config.scale
            return x if x.sum() > -1e6 else -x

    assert [group.name for group in rk.trace(Root(), torch.rand(3, 6), strict=False).groups] == ["part.up"]
