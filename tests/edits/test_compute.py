"""New values, computed and checked before anything is written."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits.compute import compute
from rekindle.edits.edit import Edit
from rekindle.errors import EditError
from rekindle.graph.regions import MatrixView, UnitIndex


class Plain:
    """A method from a list of edits."""

    key, kind = "plain", "one-shot"

    def __init__(self, *edits):
        self.edits = edits

    def plan(self, graph, evidence, seed):
        from rekindle.edits.edit import Edits

        return Edits(tuple(self.edits))


def double(old, *_):
    return old * 2


def test_wrong_shape_is_refused_before_the_first_write():
    model = nn.Linear(3, 4)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    with pytest.raises(EditError, match=r"(?s)shape \(4,\) for bias.*got: shape \(2,\)"):
        rk.apply_(Plain(Edit("weight", double, "test"), Edit("bias", lambda old: old[:2], "test")), model)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def test_a_result_that_is_not_finite_is_refused():
    with pytest.raises(EditError, match="finite new values for weight"):
        rk.apply_(Plain(Edit("weight", lambda old: old / 0, "test")), nn.Linear(2, 2))


def test_a_result_that_float16_cannot_hold_is_refused():
    model = nn.Linear(2, 2).half()
    with pytest.raises(EditError, match="float16 can hold"):
        rk.apply_(Plain(Edit("weight", lambda old: torch.full_like(old, 1e6), "test")), model)


def test_a_missing_tensor_is_named():
    with pytest.raises(EditError, match="a tensor named gone"):
        rk.apply_(Plain(Edit("gone", double, "test")), nn.Linear(2, 2))


def test_half_precision_is_computed_wide_and_rounded_once():
    seen = []

    def op(old):
        seen.append(old.dtype)
        return old / 3

    for dtype in (torch.float16, torch.bfloat16):
        model = nn.Linear(5, 4).to(dtype)
        exact = (model.weight.detach().float() / 3).to(dtype)
        rk.apply_(Plain(Edit("weight", op, "test")), model)
        assert torch.equal(model.weight, exact) and model.weight.dtype == dtype
    assert seen == [torch.float32, torch.float32]


def test_several_edits_of_one_tensor_follow_each_other():
    model = nn.Linear(2, 2)
    start = model.weight.detach().clone()
    first = UnitIndex((2, 2), (0,), torch.tensor([[0]]))
    record = rk.apply_(Plain(Edit("weight", double, "a"), Edit("weight", lambda old: old + 1, "b", first)), model)
    assert torch.equal(model.weight[0], start[0] * 2 + 1) and torch.equal(model.weight[1], start[1] * 2)
    assert [row.reason for row in record.rows] == ["a", "b"]


def test_edits_read_old_values_of_other_tensors():
    model = nn.Linear(2, 2)
    bias = model.bias.detach().clone()
    edits = (Edit("bias", double, "test"), Edit("weight", lambda old, b: old * 0 + b, "test", reads=("bias",)))
    rk.apply_(Plain(*edits), model)
    assert torch.equal(model.weight, bias.expand(2, 2))


def test_tied_tensors_in_a_state_dict_are_written_under_both_names():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(x))

    model = Tied()
    graph = rk.trace(model, torch.tensor([[1, 2]]))
    assert graph.aliases == {"embed.weight": ("head.weight",)}
    copies = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rk.apply_("shrink_perturb:shrink=0.5", copies, graph=graph)
    rk.apply_("shrink_perturb:shrink=0.5", model, graph=graph)
    assert torch.equal(copies["embed.weight"], copies["head.weight"])
    assert torch.equal(copies["embed.weight"], model.embed.weight)


@pytest.mark.parametrize("spec", ["fire", "shrink_perturb", "dsd:scope=global", "dirac_reset"])
def test_without_undo_the_result_is_the_same_and_nothing_is_kept(spec):
    from rekindle.testing.aged import aged, bits, memory, same
    from rekindle.testing.zoo import ZOO

    for name in ("weight_norm_mlp", "vit_fused"):
        one, graph, first = aged(ZOO[name])
        two, _, second = aged(ZOO[name])
        kept = rk.apply_(spec, one, first, graph=graph, reference=ZOO[name].build)
        record = rk.apply_(spec, two, second, graph=graph, reference=ZOO[name].build, undo=False)
        same(bits(one), bits(two), "differs without undo:")
        same(memory(one, first), memory(two, second), "moments differ without undo:")
        assert record.rows == kept.rows
        with pytest.raises(EditError, match="undo=False"):
            record.undo()


def test_without_undo_a_failure_still_leaves_no_trace():
    model = nn.Linear(3, 4)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    with pytest.raises(EditError):
        rk.apply_(Plain(Edit("weight", double, "test"), Edit("bias", lambda old: old / 0, "test")), model, undo=False)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def test_edits_with_one_solver_go_through_it_together():
    seen = []

    def double(matrices):
        seen.append(len(matrices))
        return 2 * matrices

    view = MatrixView((3, 3), out=(0,), in_=(1,))
    tensors = {name: torch.full((3, 3), float(n)) for n, name in enumerate("abcd")}
    edits = [Edit(name, lambda part, solved: solved + part, "test", view, solve=double) for name in "abd"]
    edits += [Edit("c", lambda part: part - 1, "test", view)]
    found = {change.tensor: float(change.new[0, 0]) for change in compute(edits, tensors)}
    assert found == {"a": 0.0, "b": 3.0, "c": 1.0, "d": 9.0}
    assert seen == [3]


@pytest.mark.parametrize("reads", [(), ("fine",)])
@pytest.mark.parametrize("kind", ["int8", "complex64", "float8_e4m3fn", "expanded"])
def test_the_last_door_for_what_holds_no_plain_floats(kind, reads):
    odd = torch.ones(2, 1).expand(2, 3) if kind == "expanded" else torch.ones(2, 3).to(getattr(torch, kind))
    tensors = {"fine": torch.ones(2, 3), "odd": odd}
    edit = Edit("fine", lambda old, other: old + other.real, "test", reads=("odd",))
    edit = edit if reads else Edit("odd", lambda old: old, "test")
    with pytest.raises(EditError, match="plain floats in odd") as caught:
        list(compute([Edit("fine", torch.neg, "first"), edit], tensors))
    assert ("share memory" if kind == "expanded" else kind) in caught.value.got
    assert torch.equal(tensors["fine"], torch.ones(2, 3))


def test_counters_are_whole_numbers_and_may_be_set():
    tensors = {"norm.num_batches_tracked": torch.tensor(7)}
    [change] = compute([Edit("norm.num_batches_tracked", torch.zeros_like, "test")], tensors)
    assert int(change.new) == 0 and change.new.dtype == torch.int64


def test_a_tensor_without_elements_is_not_computed():
    def never(old):
        raise AssertionError("there is nothing to compute with")

    [change] = compute([Edit("empty", never, "test", solve=never)], {"empty": torch.empty(0, 3)})
    assert change.new.shape == (0, 3) and not change.rows
