"""Planning and applying: one transaction, by graph or by example, with a word where nothing happens."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import EditError, NoEffectWarning, PlanError, SettingsError
from rekindle.graph.modules import tensors_of
from rekindle.testing import ZOO
from rekindle.testing.aged import aged, bits, graph_of, hooks, memory, same


def test_several_methods_are_one_transaction():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    before = {n: t.clone() for n, t in model.state_dict().items()}
    record = rk.apply_("fire+shrink_perturb:shrink=1,skip=*.weight", model, example=torch.ones(1, 4))
    assert {row.reason for row in record.rows} == {"fire", "shrink_perturb"}
    record.undo()
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def test_an_empty_plan_warns_with_the_reason():
    with pytest.warns(NoEffectWarning, match="changes nothing: named in skip"):
        rk.plan("fire:skip=*", nn.Linear(2, 2), example=torch.ones(1, 2))
    with pytest.warns(NoEffectWarning, match="nothing that it applies to"):
        rk.plan("fire", nn.ReLU(), example=torch.ones(1, 2))


def test_what_is_no_method_is_refused():
    with pytest.raises(SettingsError, match="got: <object"):
        rk.plan(object(), nn.Linear(2, 2))
    with pytest.raises(PlanError, match="redo, a method of kind recycler"):
        rk.plan("redo", nn.Linear(2, 2))
    with pytest.raises(PlanError, match="graph= beside a state dict"):
        rk.plan("full_reset", {"weight": torch.ones(2)})


@pytest.mark.parametrize("name", ZOO)
def test_an_example_does_as_well_as_a_graph(name):
    """The contract is checked with graphs that were traced before; this is what makes that enough."""
    member = ZOO[name]
    if member.requires:
        pytest.importorskip(member.requires)
    spec = "fire+shrink_perturb:shrink=0.2"
    one, graph, first = aged(member)
    two, _, second = aged(member)
    for model in (one, two):
        next(model.parameters()).requires_grad_(False)
        for child in list(model.children())[:1]:
            child.eval()
    reference = member.build
    kept = rk.apply_(spec, one, first, graph=graph, reference=reference, seed=2)
    live = tensors_of(two)
    known = {n: [id(t), t.dtype, t.stride(), t.requires_grad] for n, t in live.items()}
    modes, hooked = [module.training for module in two.modules()], hooks(two)
    gradients = {n: p.grad.clone() for n, p in two.named_parameters() if p.grad is not None}
    record = rk.apply_(spec, two, second, example=member.example(), reference=reference, seed=2)
    assert record.rows == kept.rows and record.skips == kept.skips and record.notices == kept.notices
    same(bits(one), bits(two), "differs between graph and example:")
    same(memory(one, first), memory(two, second), "moments differ between graph and example:")
    assert known == {n: [id(t), t.dtype, t.stride(), t.requires_grad] for n, t in tensors_of(two).items()}
    assert modes == [module.training for module in two.modules()] and hooked == hooks(two), "tracing left something"
    same(gradients, {n: p.grad for n, p in two.named_parameters() if p.grad is not None}, "gradient changed:")


def test_without_either_the_model_is_scanned():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert {edit.tensor for edit in rk.plan("shrink_perturb", model).edits} == set(tensors_of(model))
    with pytest.raises(PlanError, match="example="):
        rk.plan("head_reset", model)


def test_a_state_dict_is_treated_as_the_model_is():
    member = ZOO["cnn_bn"]
    model, state = member.build(), {name: t.clone() for name, t in member.build().state_dict().items()}
    record = rk.apply_("shrink_perturb", state, graph=graph_of(member))
    rk.apply_("shrink_perturb", model, graph=graph_of(member))
    same(dict(model.state_dict()), state, "differs between model and state dict:")
    record.undo()
    same(dict(member.build().state_dict()), state, "not undone:")


def test_context_and_settings_in_one_call():
    """`fire_` and its like take both; what is neither is refused."""
    one, two = (ZOO["mlp"].build() for _ in range(2))
    rk.shrink_perturb_(one, shrink=0.3, seed=5, graph=graph_of(ZOO["mlp"]))
    rk.apply_(rk.method("shrink_perturb:shrink=0.3"), two, seed=5, graph=graph_of(ZOO["mlp"]))
    same(bits(one), bits(two), "differs between function and settings:")
    with pytest.raises(rk.RekindleError, match="shrinkage"):
        rk.shrink_perturb_(one, shrinkage=0.3)
    with pytest.raises(EditError, match="undo=False"):
        rk.shrink_perturb_(one, undo=False).undo()


def test_stale_running_statistics_are_told():
    record = rk.shrink_perturb_(ZOO["cnn_bn"].build(), graph=graph_of(ZOO["cnn_bn"]))
    assert any("statistics" in notice for notice in record.notices)
    assert not any("statistics" in n for n in rk.shrink_perturb_(ZOO["mlp"].build()).notices)
