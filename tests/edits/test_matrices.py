"""A weight is edited as its layer sees it, also through weight_norm."""

import pytest
import torch

import rekindle as rk
from rekindle.edits.edit import Edits
from rekindle.edits.matrices import matrix_edits
from rekindle.graph.calls.inputs import as_call
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of


class Everywhere:
    """A method that replaces every weight's matrices by a function of them."""

    key, kind = "everywhere", "one-shot"

    def __init__(self, op, solve=None):
        self.op, self.solve = op, solve

    def plan(self, graph, evidence, seed):
        weights = [weight for weight in graph.weights if weight.role != "embedding"]
        return Edits(tuple(edit for weight in weights for edit in matrix_edits(weight, self.op, "test", self.solve)))


def effective(model, weight):
    """The matrices that a layer really applies: its attribute, which weight_norm computes."""
    module, _, leaf = weight.tensor.replace(".parametrizations.weight.original1", ".weight").rpartition(".")
    return weight.view.read(getattr(model.get_submodule(module), leaf).detach()).clone()


@pytest.mark.parametrize("name", ["mlp", "grouped_conv", "conv_transpose", "vit_mha", "gpt2", "weight_norm_mlp"])
@pytest.mark.parametrize("solved", [False, True], ids=["op", "solve and op"])
def test_the_new_matrices_are_the_function_of_the_old_ones(name, solved):
    member = ZOO[name]
    if member.requires:
        pytest.importorskip(member.requires)
    model, graph = member.build(), graph_of(member)
    weights = [weight for weight in graph.weights if weight.role != "embedding" and not weight.tied]
    before = [effective(model, weight) for weight in weights]
    square = lambda part: part @ part.mT @ part  # noqa: E731
    method = Everywhere(lambda part, found: found - part, square) if solved else Everywhere(lambda part: 3 * part + 1)
    rk.apply_(method, model, graph=graph)
    for weight, old in zip(weights, before, strict=True):
        expected = square(old) - old if solved else 3 * old + 1
        torch.testing.assert_close(effective(model, weight), expected, rtol=1e-4, atol=1e-5)


def test_under_weight_norm_both_tensors_are_edited_and_a_zero_weight_keeps_a_direction():
    member = ZOO["weight_norm_mlp"]
    model, graph = member.build(), graph_of(member)
    weight = next(weight for weight in graph.weights if weight.gain is not None)
    names = [edit.tensor for edit in matrix_edits(weight, lambda part: part, "test")]
    assert names == [weight.tensor, weight.gain[0]]
    direction = model.get_parameter(weight.tensor).detach().clone()
    rk.apply_(Everywhere(torch.zeros_like), model, graph=graph)
    assert torch.equal(model.get_parameter(weight.tensor), direction), "a direction of zeros would give NaN"
    assert not model.get_parameter(weight.gain[0]).any()
    args, kwargs = as_call(model, member.example())
    assert torch.isfinite(model(*args, **kwargs)).all() and not effective(model, weight).any()
