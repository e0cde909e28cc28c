"""The zoo: repeatable, unlike at every unit, and what it says of itself is true."""

import pytest
import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

from rekindle.graph.calls.inputs import as_call
from rekindle.testing import NOT_UNDERSTOOD, ZOO
from rekindle.testing.aged import bits, same
from rekindle.testing.zoo import zoo

MEMBERS = [pytest.param(member, id=member.name) for member in (*zoo(), *NOT_UNDERSTOOD.values())]
WITH_FLOATS = [p for p in MEMBERS if isinstance(p.values[0].example(), torch.Tensor)]
WITH_FLOATS = [p for p in WITH_FLOATS if p.values[0].example().is_floating_point()]


def outputs(model, example):
    args, kwargs = as_call(model, example)
    with torch.no_grad():
        leaves = pytree.tree_leaves(model(*args, **kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


@pytest.mark.parametrize("member", MEMBERS)
def test_the_same_every_time_and_the_generator_is_left(member):
    first, example = member.build(), member.example()
    torch.manual_seed(123)
    state = torch.get_rng_state()
    same(bits(first), bits(member.build()), "differs between two builds:")
    again = member.example()
    assert torch.equal(state, torch.get_rng_state())
    for one, other in zip(pytree.tree_leaves(example), pytree.tree_leaves(again), strict=True):
        assert torch.equal(one, other)
    assert all(torch.isfinite(found).all() for found in outputs(first, example))
    assert sum(parameter.numel() for parameter in first.parameters()) < 10_000


@pytest.mark.parametrize("member", MEMBERS)
def test_no_parameter_is_at_its_usual_start(member):
    """A zero bias or a scale of one would hide a mistake in what is moved with it."""
    model = member.build()
    for name, parameter in model.named_parameters():
        assert parameter.numel() == 1 or parameter.detach().std() > 0, f"{name} is constant"
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            assert module.running_mean.std() > 0 and module.running_var.std() > 0


@pytest.mark.parametrize("member", WITH_FLOATS)
def test_it_says_which_models_are_homogeneous(member):
    model, example = member.build().eval(), member.example()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and ("bias" in name or name in {"b1", "b2"}):
                parameter.zero_()
        scaled, output = model(3 * example), model(example)
    assert torch.allclose(scaled, 3 * output, rtol=1e-4, atol=1e-5) == member.homogeneous


def test_a_choice_by_name():
    assert [member.name for member in zoo(["vgg", "mlp"])] == ["vgg", "mlp"]
    assert all(member.name == name for name, member in (ZOO | NOT_UNDERSTOOD).items())
    with pytest.raises(KeyError):
        zoo(["no such model"])


def test_a_model_without_its_package_is_left_out(monkeypatch):
    monkeypatch.setattr("rekindle.testing.zoo.find_spec", lambda name: None)
    assert {member.name for member in ZOO.values()} - {member.name for member in zoo()} == {"gpt2", "llama"}
    assert zoo(["gpt2"]) == []
