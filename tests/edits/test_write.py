"""The only writer: all or nothing, and the optimizer in step."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits import write as apply
from rekindle.edits.edit import Edit
from rekindle.edits.write import compute
from rekindle.errors import EditError
from rekindle.graph.regions import MatrixView, UnitIndex


class Plain:
    """A method from a list of edits."""

    def __init__(self, *edits):
        self.edits = edits

    def plan(self, graph, evidence, seed):
        from rekindle.edits.edit import Edits

        return Edits(tuple(self.edits))


def double(old, *_):
    return old * 2


def trained(make, *sizes):
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)))
    optimizer = make(model)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, sizes[0])).square().sum().backward()
        optimizer.step()
    return model, optimizer


OPTIMIZERS = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9),
    "adam": lambda m: torch.optim.Adam(m.parameters(), amsgrad=True),
    "adamw": lambda m: torch.optim.AdamW(m.parameters()),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), momentum=0.9, centered=True),
    "adadelta": lambda m: torch.optim.Adadelta(m.parameters()),
    "muon": lambda m: torch.optim.Muon([p for p in m.parameters() if p.ndim == 2]),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_moments_are_cleared_exactly_at_the_edited_rows(name):
    model, optimizer = trained(OPTIMIZERS[name], 3, 4, 2)
    rows = UnitIndex((4, 3), (0,), torch.tensor([[1], [3]]))
    before = [m.clone() for m in apply.moments(optimizer, model[0].weight)]
    steps = [float(s["step"]) for s in optimizer.state.values() if "step" in s]
    others = [m.clone() for m in apply.moments(optimizer, model[1].weight)]
    assert before and all(bool(m.any()) for m in before)
    rk.apply_(Plain(Edit("0.weight", double, "test", rows)), model, optimizer)
    for old, new in zip(before, apply.moments(optimizer, model[0].weight), strict=True):
        assert not new[[1, 3]].any()
        assert torch.equal(new[[0, 2]], old[[0, 2]])
    assert [float(s["step"]) for s in optimizer.state.values() if "step" in s] == steps
    assert all(torch.equal(a, b) for a, b in zip(others, apply.moments(optimizer, model[1].weight), strict=True))


def test_without_optimizer_moments_are_left_alone():
    model, optimizer = trained(OPTIMIZERS["adam"], 3, 4)
    before = [m.clone() for m in apply.moments(optimizer, model[0].weight)]
    rk.apply_(Plain(Edit("0.weight", double, "test")), model)
    assert all(torch.equal(a, b) for a, b in zip(before, apply.moments(optimizer, model[0].weight), strict=True))


def test_the_step_of_a_scalar_parameter_is_no_moment():
    model = nn.Module()
    model.scale = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.Adam(model.parameters())
    model.scale.square().backward()
    optimizer.step()
    rk.apply_(Plain(Edit("scale", double, "test")), model, optimizer)
    state = optimizer.state[model.scale]
    assert float(state["step"]) == 1 and float(state["exp_avg"]) == 0


def test_state_of_another_shape_is_kept_and_told():
    model = nn.Sequential(nn.Linear(3, 4))
    optimizer = torch.optim.Adafactor(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    record = rk.apply_(Plain(Edit("0.weight", double, "test")), model, optimizer)
    assert any("another shape" in notice for notice in record.notices)


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


def test_an_interrupted_write_is_rolled_back(monkeypatch):
    model, optimizer = trained(OPTIMIZERS["adam"], 3, 4, 2)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    moments = [m.clone() for p in model.parameters() for m in apply.moments(optimizer, p)]
    put, calls = apply._put, []

    def tired(target, new, log):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        put(target, new, log)

    monkeypatch.setattr(apply, "_put", tired)
    with pytest.raises(KeyboardInterrupt):
        rk.apply_(Plain(Edit("0.weight", double, "test"), Edit("1.weight", double, "test")), model, optimizer)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    after = [m for p in model.parameters() for m in apply.moments(optimizer, p)]
    assert all(torch.equal(a, b) for a, b in zip(moments, after, strict=True))


def test_undo_refuses_after_training_went_on():
    model, optimizer = trained(OPTIMIZERS["sgd"], 3, 4)
    start = model[0].weight.detach().clone()
    record = rk.apply_(Plain(Edit("0.weight", double, "test")), model, optimizer)
    optimizer.step()
    with pytest.raises(EditError, match="written since"):
        record.undo()
    record.undo(force=True)
    assert torch.equal(model[0].weight, start)
    record.undo()  # once is enough


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
