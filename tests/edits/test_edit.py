"""Edits as values: which elements they are about, and how plans are joined."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import rekindle as rk
from rekindle.edits.edit import Edit, Edits, Skip
from rekindle.edits.surgery import Surgery
from rekindle.graph.regions import UnitIndex
from rekindle.methods import one_shot_method
from rekindle.methods.one_shot.fire import CARD


def plain(old, *_):
    return old


def test_without_more_an_edit_is_about_its_region():
    old = torch.randn(4, 3)
    assert Edit("w", plain, "test").reach(old).all()
    rows = UnitIndex((4, 3), (0,), torch.tensor([[1], [3]]))
    assert Edit("w", plain, "test", rows).reach(old).any(1).tolist() == [False, True, False, True]


def test_with_touched_it_is_about_those_elements_of_its_region():
    old, other = torch.tensor([[1.0, -1.0], [2.0, -3.0], [-4.0, 5.0]]), torch.tensor([10.0])
    rows = UnitIndex((3, 2), (0,), torch.tensor([[0], [2]]))
    seen = []

    def negative(part, given):
        seen.append(given)
        return part < 0

    reach = Edit("w", plain, "test", rows, reads=("other",), touched=negative).reach(old, other)
    assert reach.tolist() == [[False, True], [False, False], [True, False]] and reach.dtype == torch.bool
    assert seen[0] is other


def test_a_solution_is_used_where_it_is_there_and_found_where_it_is_not():
    edit = Edit("w", lambda part, solution, other: part + solution + other, "test", solve=lambda part: 10 * part)
    part, other = torch.ones(1, 2, 2), torch.full((1, 2, 2), 100.0)
    assert edit.finished(part, torch.zeros(1, 2, 2), other).unique().tolist() == [101.0]
    assert edit.finished(part, None, other).unique().tolist() == [111.0]


def test_plans_are_joined_in_order():
    def made(word):
        return Edits((Edit(word, plain, "test"),), (Skip(word, "why"),), (word,), (Surgery(word, None, (), "why"),))

    both = made("a") + made("b")
    assert [edit.tensor for edit in both.edits] == ["a", "b"] == [skip.tensor for skip in both.skips]
    assert both.notices == ("a", "b") and [operation.module for operation in both.surgery] == ["a", "b"]
    empty = Edits() + Edits()
    assert not (empty.edits or empty.skips or empty.notices or empty.surgery)


# --- what an operation is given of other tensors ---


@one_shot_method(CARD, identity={})
class Swap:
    """Exchange two tensors: each takes the old value of the other."""

    def plan(self, graph, evidence, seed):
        def taken(old, other):
            assert other.dtype == torch.float32, "half precision is widened"
            return other.clone()

        return Edits(
            (Edit("0.weight", taken, "swap", reads=("2.weight",)), Edit("2.weight", taken, "swap", reads=("0.weight",)))
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_tensors_are_read_as_they_were_bit_by_bit(dtype):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to(dtype)
    first, second = model[0].weight.detach().clone(), model[2].weight.detach().clone()
    rk.apply_(Swap(), model, example=torch.randn(2, 4).to(dtype))
    assert torch.equal(model[0].weight, second) and torch.equal(model[2].weight, first)


def weight_normed():
    torch.manual_seed(0)
    model = nn.Sequential(weight_norm(nn.Linear(5, 4)), nn.ReLU(), nn.Linear(4, 3))
    model[0].parametrizations.weight.original0.data.mul_(torch.tensor([[0.5], [2.0], [3.0], [1.0]]))
    return model


def test_a_weight_under_weight_norm_is_moved_half_of_the_way_exactly():
    """Halfway to the isometry the size of the old weight matters: it comes from the gain, which the edit reads."""
    model = weight_normed()
    old = model[0].weight.detach().double()
    left, _, right = torch.linalg.svd(old, full_matrices=False)
    expected = 0.5 * old + 0.5 * math.sqrt(4 / 5) * (left @ right)
    rk.fire_(model, example=torch.randn(2, 5), solver="exact", blend=0.5)
    torch.testing.assert_close(model[0].weight.detach().double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        model[0].parametrizations.weight.original1.detach().double(), expected, rtol=1e-5, atol=1e-6
    )


def test_the_smallest_of_all_tensors_are_found_where_a_hundredth_decides():
    """The fifth smallest of all is 1.004 in one tensor, and 1.005 stands in the other."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))
    model[0].weight.data = torch.tensor([1.000, 1.002, 1.004, 1.006] + [9.0] * 12).reshape(4, 4)
    model[2].weight.data = torch.tensor([1.001, 1.003, 1.005, 1.007] + [9.0] * 12).reshape(4, 4)
    before = [model[n].weight.detach().clone() for n in (0, 2)]
    rk.dsd_(model, example=torch.randn(2, 4), fraction=5 / 32, scope="global")
    changed = [
        (model[n].weight != old).flatten().nonzero().flatten().tolist() for n, old in zip((0, 2), before, strict=True)
    ]
    assert changed == [[0, 1, 2], [0, 1]]


def test_a_state_dict_is_rescaled_by_the_weights_it_holds():
    """Biases get the product of the factors of weights that their edits read: the function is only scaled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    reference = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for layer, factor in ((model[0], 3.0), (model[2], 0.7)):
        layer.weight.data *= factor
    x = torch.randn(6, 4, dtype=torch.float64)
    before, graph = model(x).detach(), rk.trace(model, x)
    state = model.state_dict()
    rk.apply_("rescale:proportional=True", state, graph=graph, reference=reference)
    after = torch.func.functional_call(model, state, (x,)).detach()
    torch.testing.assert_close(after, before / 2.1, rtol=1e-9, atol=0)
    torch.testing.assert_close(state["0.bias"], reference["0.bias"] / 3.0, rtol=1e-9, atol=0)
    torch.testing.assert_close(state["2.bias"], reference["2.bias"] / 2.1, rtol=1e-9, atol=0)


def test_the_mean_of_a_recycled_unit_is_taken_up_exactly():
    """CBP: b <- b + W[:, unit] * mean; a unit with a constant activation leaves the function as it was."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.copy_(torch.tensor([1.5, 100.0, 100.0, 100.0]))  # constant activations
        model[2].weight[:, 0] = torch.tensor([1e-2, -3e-2])  # of little use
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    keeper = rk.Keeper(model, optimizer, "cbp:rate=0.25,maturity=1", example=torch.zeros(1, 3))
    before, bias, column = (
        t.detach().clone() for t in (model(torch.zeros(1, 3)), model[2].bias, model[2].weight[:, 0])
    )
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(8, 3)).sum().backward()
        optimizer.step()
        keeper.step()
        if keeper.recycled["0"]:
            break
    assert keeper.recycled["0"] == 1 and not model[2].weight[:, 0].any()
    torch.testing.assert_close(model[2].bias.detach() - bias, 1.5 * column, rtol=1e-3, atol=0)
    torch.testing.assert_close(model(torch.zeros(1, 3)).detach(), before, rtol=1e-5, atol=1e-5)
