"""Models with a past: what is kept for speed is what training gives, and the comparisons can fail."""

import copy

import pytest
import torch
from torch import nn

from rekindle.edits.edit import Edit
from rekindle.graph.modules import tensors_of
from rekindle.graph.regions import UnitIndex
from rekindle.testing import ZOO, ZooModel
from rekindle.testing.aged import (
    OneAtATime,
    aged,
    amsgrad,
    bits,
    graph_of,
    hooks,
    initial,
    learn,
    memory,
    overwrite,
    rank_one,
    regions,
    same,
    sgd,
)


@pytest.mark.parametrize("make", [torch.optim.Adam, sgd, amsgrad])
@pytest.mark.parametrize("name", ZOO)
def test_the_past_that_is_given_is_that_of_a_step_of_training(name, make):
    member = ZOO[name]
    if member.requires:
        pytest.importorskip(member.requires)
    for _ in range(2):  # from memory the second time
        model, _, optimizer = aged(member, make)
        slow = member.build()
        its_optimizer = make(slow.parameters())
        learn(slow, member.example(), its_optimizer)
        same(bits(slow), bits(model), "differs from training:")
        for p, q in zip(slow.parameters(), model.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None) and (p.grad is None or torch.equal(p.grad, q.grad))
            state, other = its_optimizer.state.get(p, {}), optimizer.state.get(q, {})
            assert state.keys() == other.keys()
            assert all(torch.equal(torch.as_tensor(state[key]), torch.as_tensor(other[key])) for key in state)
        learn(slow, member.example(), its_optimizer)
        learn(model, member.example(), optimizer)
        same(bits(slow), bits(model), "goes on differently:")


def test_what_one_does_to_its_model_is_not_seen_by_the_next():
    first, _, optimizer = aged(ZOO["cnn_bn"])
    second, _, other = aged(ZOO["cnn_bn"])
    before, moments = bits(second), memory(second, other)
    learn(first, ZOO["cnn_bn"].example(), optimizer)
    for parameter in first.parameters():
        parameter.grad.zero_()
    third, _, _ = aged(ZOO["cnn_bn"])
    same(before, bits(second), "shared:")
    same(moments, memory(second, other), "shared:")
    same(before, bits(third), "shared:")
    assert all(parameter.grad.any() for parameter in third.parameters())


def test_a_model_of_ones_own_is_traced_and_trained_once():
    built = []

    def build():
        built.append(1)
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 2))

    mine = ZooModel("mlp", build, lambda: torch.ones(2, 3), homogeneous=True)  # the name of another
    graphs = [graph_of(mine) for _ in range(2)]
    assert graphs[0] is graphs[1] is not graph_of(ZOO["mlp"]) and len(built) == 1
    aged(mine)
    count = len(built)
    aged(mine)
    assert len(built) == count + 1, "built anew, not trained anew"
    assert torch.equal(initial(mine)["0.weight"], build()[0].weight)


def test_equal_bits_and_what_is_not():
    one = {"a": torch.tensor([1.0, float("nan")]), "b": torch.zeros(2, 2)}
    same(one, copy.deepcopy(one), "")
    for other in (
        {"a": one["a"]},
        {**one, "b": torch.zeros(2, 3)},
        {**one, "b": torch.zeros(2, 2).double()},
        {**one, "b": torch.full((2, 2), 1e-45)},
        {**one, "a": torch.tensor([1.0, 0.0])},
        {**one, "a": torch.tensor([float("nan"), float("nan")])},
    ):
        with pytest.raises(AssertionError, match="^differs"):
            same(one, other, "differs")


def test_regions_of_several_edits_are_joined():
    tensors = {"w": torch.zeros(3, 2), "v": torch.zeros(2)}
    row = [Edit("w", lambda old: old, "", UnitIndex((3, 2), (0,), torch.tensor([[n]]))) for n in (0, 2)]
    found = regions(row, tensors)
    assert list(found) == ["w"] and found["w"].tolist() == [[True, True], [False, False], [True, True]]


def test_hooks_are_counted_by_module():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model[0].register_forward_hook(lambda *_: None)
    model[0].register_full_backward_pre_hook(lambda *_: None)
    assert hooks(model) == [0, 2, 0]


def test_spoiled_weights():
    model = ZOO["vgg"].build()
    overwrite(model, rank_one)
    for parameter in model.parameters():
        assert parameter.dim() == 1 or torch.linalg.matrix_rank(parameter.flatten(1)) == 1
    overwrite(model, torch.zeros_like)
    assert not any(parameter.any() for parameter in model.parameters())


def test_every_look_at_a_stored_tensor_gives_a_new_copy():
    stored = tensors_of(nn.Linear(2, 2))
    seen = OneAtATime(stored)
    assert set(seen) == set(stored) and len(seen) == 2
    assert torch.equal(seen["weight"], stored["weight"]) and seen["weight"] is not seen["weight"]
