"""A call that is kept: every value as it was, and every operation to be run again."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from rekindle.graph.proof.recorder import record
from rekindle.graph.proof.tape import Tape, Unfollowable


def tape_of(model: nn.Module, x: torch.Tensor) -> Tape:
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    with torch.no_grad():
        return record(lambda own, given: [functional_call(model, own, (given,))], tensors, set(tensors), x)


NET = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


def test_a_tape_with_other_weights_is_the_model_with_other_weights():
    tape = tape_of(NET, X)
    other = {name: p.detach() * 1.5 + 0.1 for name, p in NET.named_parameters()}
    with torch.no_grad():
        assert torch.equal(tape.values[tape.outputs[0]], NET(X))
        assert torch.equal(tape.replay(other)[0], functional_call(NET, other, (X,)))


def test_what_depends_on_data_and_on_parameters_is_known():
    tape = tape_of(NET, X)
    assert not any(tape.data[value] for value in tape.leaves.values())
    assert all(tape.learned[value] for value in tape.leaves.values())
    assert tape.data[tape.outputs[0]] and tape.learned[tape.outputs[0]]
    assert not tape.learned[tape.nodes[0].inputs[0]] or not tape.data[tape.nodes[0].inputs[0]]
    assert set(tape.names_behind(tape.outputs[0])) == set(tape.leaves)


def test_evaluations_are_counted():
    tape = tape_of(NET, X)
    tape.replay({})
    assert tape.evaluations == len(tape.nodes) > 4


def test_a_view_of_a_weight_is_plain():
    tape = tape_of(NET, X)
    (product,) = [node for node in tape.nodes if node.op == "addmm" and tape.leaves["2.bias"] in node.inputs]
    bias, data, weight = (arg.value for arg in product.args[:3])
    assert tape.plain[bias] and tape.plain[weight] and not tape.plain[data]


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x + 1 if bool(self.w > 0) else x - 1


def test_python_that_would_go_another_way_is_not_followed():
    tape = tape_of(Branching(), X)
    assert torch.equal(tape.replay({"w": torch.tensor(2.0)})[0], X + 1)
    with pytest.raises(Unfollowable, match="decides how the model goes on"):
        tape.replay({"w": torch.tensor(-2.0)})


class Drawing(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.w, self.draw = nn.Parameter(torch.full((3,), 0.5)), draw

    def forward(self, x):
        return self.draw(self.w.expand(5, 3)) + x


def test_random_numbers_are_those_of_the_call():
    tape = tape_of(Drawing(torch.randn_like), X)
    assert torch.equal(tape.replay({"w": torch.zeros(3)})[0], tape.values[tape.outputs[0]])


def test_random_numbers_that_depend_on_weights_are_not_followed():
    tape = tape_of(Drawing(torch.bernoulli), X)
    with pytest.raises(Unfollowable, match="random numbers"):
        tape.replay({"w": torch.zeros(3)})
