"""Surgery: printed, all or nothing, undone together with the edits."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.edits import operate
from rekindle.edits.edit import Edit, Edits
from rekindle.edits.inserted import is_standardized
from rekindle.edits.surgery import Standardize, Surgery, Twins
from rekindle.errors import PlanError


class Plain:
    """A method from given edits and surgery."""

    key, kind = "plain", "one-shot"

    def __init__(self, edits=(), surgery=()):
        self.edits, self.surgery = tuple(edits), tuple(surgery)

    def plan(self, graph, evidence, seed):
        return Edits(self.edits, surgery=self.surgery)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def trained(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return optimizer


NORM = Surgery("1", Standardize(0.5, 2.0), ("0.weight",), "test")
TWINS = Surgery("2", Twins("2"), ("2.weight", "2.bias"), "test")


def test_plan_and_record_show_them():
    model = net()
    method = Plain(surgery=(NORM, TWINS))
    plan = rk.plan(method, model)
    record = rk.apply_(method, model)
    for shown in (str(plan), str(record)):
        assert "structure: 1: (x - 0.5) / 2 after it, 1 parameters frozen (test)" in shown
        assert "structure: 2: a new trainable copy minus its frozen twin, 2 parameters frozen (test)" in shown
    assert record.to_dict()["surgery"][0]["freezes"] == ["0.weight"]
    assert (Edits(surgery=(NORM,)) + Edits(surgery=(TWINS,))).surgery == (NORM, TWINS)


def test_planning_changes_nothing():
    model = net()
    str(rk.plan(Plain(surgery=(NORM, TWINS)), model))
    assert not model[1]._forward_hooks and isinstance(model[2], nn.Linear)


def test_edits_and_surgery_are_undone_together():
    model = net()
    optimizer = trained(model)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    groups = [list(g["params"]) for g in optimizer.param_groups]
    moments = {n: optimizer.state[p]["exp_avg"].clone() for n, p in model.named_parameters()}
    grads = {n: p.grad for n, p in model.named_parameters()}
    record = rk.apply_(Plain([Edit("0.weight", lambda old: old * 2, "test")], (NORM, TWINS)), model, optimizer)
    assert len(optimizer.param_groups[0]["params"]) == 3  # 0.weight left, the head's two were replaced
    record.undo()
    after = model.state_dict()
    assert list(before) == list(after) and all(torch.equal(before[n], after[n]) for n in before)
    assert [[id(p) for p in old] for old in groups] == [[id(p) for p in g["params"]] for g in optimizer.param_groups]
    for name, parameter in model.named_parameters():
        assert torch.equal(optimizer.state[parameter]["exp_avg"], moments[name])
        assert parameter.requires_grad and parameter.grad is grads[name]
    assert not model[1]._forward_hooks and not list(model.buffers())


def test_an_update_is_undone_to_the_former_numbers():
    model = net()
    rk.apply_(Plain(surgery=(Surgery("1", Standardize(1.0, 2.0), (), "test"),)), model)
    record = rk.apply_(Plain(surgery=(Surgery("1", Standardize(3.0, 4.0), (), "test"),)), model)
    assert len(model[1]._forward_hooks) == 1 and model[1].rekindle_mean == 3
    record.undo()
    assert is_standardized(model[1]) and (model[1].rekindle_mean, model[1].rekindle_std) == (1, 2)


def test_a_failure_half_way_leaves_no_trace(monkeypatch):
    model = net()
    optimizer = trained(model)
    before = {n: t.clone() for n, t in model.state_dict().items()}

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(operate, "_inject", fail)
    method = Plain([Edit("0.weight", lambda old: old * 2, "test")], (NORM, TWINS))
    with pytest.raises(MemoryError):
        rk.apply_(method, model, optimizer)
    after = model.state_dict()
    assert list(before) == list(after) and all(torch.equal(before[n], after[n]) for n in before)
    assert all(p.requires_grad and p in optimizer.state for p in model.parameters())
    assert len(optimizer.param_groups[0]["params"]) == 4


def test_freezing_alone_survives_momentum_and_decay():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    record = rk.apply_(Plain(surgery=(Surgery("0", None, ("0.weight", "0.bias"), "test"),)), model, optimizer)
    kept, moved = model[0].weight.clone(), model[2].weight.clone()
    optimizer.step()
    assert torch.equal(kept, model[0].weight) and not torch.equal(moved, model[2].weight)
    assert "2 parameters frozen" in str(record)


def test_a_group_may_become_empty():
    model = net()
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        optimizer = kind([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1)
        model(torch.ones(2, 3)).sum().backward()
        record = rk.apply_(Plain(surgery=(Surgery("0", None, ("0.weight", "0.bias"), "test"),)), model, optimizer)
        assert [len(group["params"]) for group in optimizer.param_groups] == [0, 2]
        kept, moved = (model[n].weight.detach().clone() for n in (0, 2))
        optimizer.step()
        assert torch.equal(kept, model[0].weight) and not torch.equal(moved, model[2].weight)
        record.undo(force=True)
        assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2]


def test_what_cannot_be_done_is_refused_before_anything_is_written():
    model = net()
    edit = Edit("0.weight", lambda old: old * 2, "test")
    before = model[0].weight.clone()
    for operation, word in (
        (Surgery("7", Standardize(0.0, 1.0), (), "test"), "path of a module"),
        (Surgery("", Twins(""), (), "test"), "the whole model"),
    ):
        with pytest.raises(PlanError, match=word):
            rk.apply_(Plain([edit], (operation,)), model)
    with pytest.raises(PlanError, match="a live model"):
        rk.apply_(Plain([edit], (NORM,)), dict(model.state_dict()), graph=rk.trace(model, torch.ones(2, 3)))
    assert torch.equal(before, model[0].weight)


def test_no_copy_is_drawn_of_a_module_that_holds_no_plain_floats():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2, dtype=torch.complex64))
    before = list(model.state_dict())
    with pytest.raises(PlanError, match="weight: complex64"):
        operate.prepare([Surgery("1", Twins("1"), reason="test")], model)
    with pytest.raises(PlanError, match="plain floats in 1.weight"):
        rk.plasticity_injection_(model, head="1")
    assert list(model.state_dict()) == before
