"""What is exported of a model: all of it, without what only the loss needs, or pieces of it."""

import pytest
import torch
from torch import nn

from rekindle.errors import GraphError
from rekindle.graph.programs import programs_of

X = torch.ones(2, 3)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.block(x) if x.sum() > 0 else x)


class Scored(nn.Linear):
    """Its loss looks at the values of the labels, which no export can follow."""

    def forward(self, x, labels=None):
        logits = super().forward(x)
        found = {"logits": logits}
        if labels is not None and int(labels.max()) > 0:
            found["loss"] = nn.functional.cross_entropy(logits, labels)
        return found


def test_as_a_whole():
    found = programs_of(nn.Linear(3, 2), X, strict=True)
    assert [piece.path for piece in found.pieces] == [""] and not found.notes and found.found is None


def test_in_pieces_unless_strict():
    with pytest.raises(GraphError, match="branches on data"):
        programs_of(Branching(), X, strict=True)
    found = programs_of(Branching(), X, strict=False)
    assert {piece.path for piece in found.pieces} == {"block", "head"} and found.found is not None


def test_without_a_loss_that_cannot_be_followed():
    batch = {"x": X, "labels": torch.tensor([0, 1])}
    found = programs_of(Scored(3, 2), batch, strict=True)
    assert found.notes == ("left out: the loss, and labels of the example, on which only it depends",)
    assert [piece.path for piece in found.pieces] == [""]


def test_a_model_that_does_not_run_is_refused():
    with pytest.raises(GraphError, match=r"model\(example\) fails"):
        programs_of(nn.Linear(4, 2), X, strict=False)


def test_structure_needs_no_values():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    assert programs_of(model, X, strict=True).pieces[0].program is not None


def test_a_refusal_names_tensors_that_hold_no_plain_floats():
    model = Branching()
    model.codes = nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False)
    with pytest.raises(GraphError, match="the model has codes, int8") as refused:
        programs_of(model, X, strict=True)
    assert "leave example= out" in refused.value.fix


class WrongType(Branching):
    def forward(self, x):
        return self.head(self.block(x.double()) if x.sum() > 0 else x)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("model", [WrongType(), nn.Linear(4, 2)], ids=["type", "shape"])
def test_a_model_that_fails_by_itself_is_told_so_and_nothing_else(model, strict):
    with pytest.raises(GraphError, match=r"model\(example\) fails: RuntimeError: mat1 and mat2") as refused:
        programs_of(model, X, strict=strict)
    assert "strict" not in refused.value.fix
    assert model.__class__ is nn.Linear or "test_programs.py:" in refused.value.got
