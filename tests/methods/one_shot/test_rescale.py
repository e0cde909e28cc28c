"""Rescaling, by hand, against an obvious oracle, and over the zoo."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils import _pytree as pytree

import rekindle as rk
from rekindle.errors import NoEffectWarning, PlanError, SettingsError
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.scaling.solve import wishes_of
from rekindle.testing.aged import graph_of
from rekindle.testing.zoo import zoo
from tests.graph.scaling.test_solve import other

MEMBERS = [pytest.param(member, id=member.name) for member in zoo()]
HOMOGENEOUS = [pytest.param(member, id=member.name) for member in zoo() if member.homogeneous]


def grown(model, seed=0):
    """The model as if training had made its tensors larger, each in its own way; in float64."""
    draw = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(model).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + float(torch.rand((), generator=draw)))
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return model


def run(model, example):
    args, kwargs = pytree.tree_map(
        lambda x: x.double() if torch.is_floating_point(x) else x, tuple(as_call(model, example))
    )
    with torch.no_grad():
        leaves = pytree.tree_leaves(model(*args, **kwargs))
    return torch.cat([x.reshape(-1) for x in leaves if isinstance(x, Tensor) and x.is_floating_point()])


def deviation(member):
    """How far the rescaled model is from C times the model before, C the same for all inputs."""
    model = grown(member.build())
    examples = [other(member.example(), seed) for seed in range(4)]
    before = torch.cat([run(model, example) for example in examples])
    record = rk.rescale_(model, graph=graph_of(member), reference=member.build)
    after = torch.cat([run(model, example) for example in examples])
    constant = float((before @ after) / (before @ before))
    return float((after - constant * before).abs().max() / after.abs().max()), constant, record


@pytest.mark.parametrize("member", HOMOGENEOUS)
def test_homogeneous_models_keep_their_function_up_to_a_constant(member):
    error, constant, record = deviation(member)
    assert error < 1e-9 and constant > 0 and record.changed


@pytest.mark.parametrize("member", [p for p in MEMBERS if not p.values[0].homogeneous])
def test_so_do_all_others_up_to_the_eps_of_normalizations(member):
    error, constant, record = deviation(member)
    assert error < 1e-3 and constant > 0 and record.changed


def test_two_layers_by_hand():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    start = {"0.weight": [[1.0, 0.0], [0.0, 0.0]], "0.bias": [0.0, 0.0], "2.weight": [[0.6, 0.8]], "2.bias": [0.0]}
    now = {"0.weight": [[0.0, 3.0], [4.0, 0.0]], "0.bias": [5.0, -10.0], "2.weight": [[0.0, 2.0]], "2.bias": [7.0]}
    net.load_state_dict({name: torch.tensor(value) for name, value in now.items()})
    rk.rescale_(net, example=torch.zeros(1, 2), reference={name: torch.tensor(v) for name, v in start.items()})
    # c_1 = 1/5, c_2 = 1/2, C = 1/10
    assert torch.allclose(net[0].weight, torch.tensor([[0.0, 0.6], [0.8, 0.0]]))
    assert torch.allclose(net[0].bias, torch.tensor([1.0, -2.0]))
    assert torch.allclose(net[2].weight, torch.tensor([[0.0, 1.0]]))
    assert torch.allclose(net[2].bias, torch.tensor([0.7]))


@pytest.mark.parametrize("strength", [0.25, 1.0])
def test_a_part_of_the_way_by_hand(strength):
    """Norms 5 and 2 go toward 1 and 1; biases get the running product, or stay."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    start = {"0.weight": [[1.0, 0.0], [0.0, 0.0]], "0.bias": [0.0, 0.0], "2.weight": [[0.6, 0.8]], "2.bias": [0.0]}
    now = {"0.weight": [[0.0, 3.0], [4.0, 0.0]], "0.bias": [5.0, -10.0], "2.weight": [[0.0, 2.0]], "2.bias": [7.0]}
    net.load_state_dict({name: torch.tensor(value) for name, value in now.items()})
    alone = copy.deepcopy(net)
    reference = {name: torch.tensor(v, dtype=torch.float64) for name, v in start.items()}
    rk.rescale_(net, example=torch.zeros(1, 2).double(), reference=reference, strength=strength)
    rk.rescale_(alone, reference=reference, strength=strength, proportional=False)
    first, second = 5 - 4 * strength, 2 - strength  # the new norms
    for each in (net, alone):
        assert float(each[0].weight.detach().norm()) == pytest.approx(first, rel=1e-12)
        assert float(each[2].weight.detach().norm()) == pytest.approx(second, rel=1e-12)
    assert net[2].bias.item() == pytest.approx(7 * first / 5 * second / 2, rel=1e-12) and alone[2].bias.item() == 7.0


@pytest.mark.parametrize("strength", [0, -0.5, 1.5, math.nan])
def test_a_strength_is_a_part(strength):
    with pytest.raises(SettingsError, match="strength"):
        rk.method(f"rescale:strength={strength}")


@pytest.mark.parametrize("name", ["mlp", "vgg", "conv3d", "grouped_conv", "conv_transpose", "cnn_bn", "layer_norm_mlp"])
def test_in_a_chain_every_weight_has_its_initial_norm(name):
    member = zoo([name])[0]
    start, model, graph = member.build(), grown(member.build()), graph_of(member)
    rk.rescale_(model, graph=graph, reference=start)
    wanted, found = start.state_dict(), model.state_dict()
    wishes = wishes_of(graph)
    assert len(wishes) >= 3
    for wish in wishes:
        assert float(found[wish.tensor].norm()) == pytest.approx(float(wanted[wish.tensor].double().norm()), rel=1e-9)


def test_biases_get_the_running_product():
    """Theorem 1, layer by layer."""
    member = zoo(["vgg"])[0]
    start, model = member.build().double(), grown(member.build())
    old = {name: p.detach().clone() for name, p in model.named_parameters()}
    rk.rescale_(model, graph=graph_of(member), reference=start)
    product = 1.0
    for name, parameter in model.named_parameters():
        if name.endswith("weight"):
            product *= float(start.get_parameter(name).detach().norm() / old[name].norm())
        else:
            assert torch.allclose(parameter, product * old[name], rtol=1e-10)


@pytest.mark.parametrize("member", MEMBERS)
def test_each_for_itself(member):
    """proportional=False: every weight at its norm, everything else as it was."""
    start, model, graph = member.build().double(), grown(member.build()), graph_of(member)
    old = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rk.rescale_(model, graph=graph, reference=start, proportional=False)
    found, wanted = model.state_dict(), start.state_dict()
    touched = {wish.tensor: torch.zeros(wish.shape, dtype=torch.bool) for wish in wishes_of(graph)}
    for wish in wishes_of(graph):
        new, first = wish.where.read(found[wish.tensor]), wish.where.read(wanted[wish.tensor])
        assert float(new.norm()) == pytest.approx(float(first.norm()), rel=1e-9)
        assert (
            torch.nn.functional.cosine_similarity(new.flatten(), wish.where.read(old[wish.tensor]).flatten(), 0)
            > 1 - 1e-9
        )
        touched[wish.tensor] |= wish.where.mask(new.new_empty(wish.shape))
    aliases = {alias: name for name, others in graph.aliases.items() for alias in others}
    for name, tensor in found.items():
        mask = touched.get(aliases.get(name, name), torch.zeros(tensor.shape, dtype=torch.bool))
        assert torch.equal(tensor[~mask], old[name][~mask]), name


def test_without_a_reference_the_law_tells_the_norm():
    net = nn.Sequential(nn.Linear(50, 40), nn.LayerNorm(40), nn.ReLU(), weight_norm(nn.Linear(40, 30)))
    rk.rescale_(net, example=torch.zeros(1, 50))
    assert float(net[0].weight.detach().norm()) == pytest.approx(math.sqrt(50 * 40) / math.sqrt(3 * 50), rel=1e-6)
    assert float(net[1].weight.detach().norm()) == pytest.approx(math.sqrt(40), rel=1e-6)
    assert float(net[3].weight.detach().norm()) == pytest.approx(math.sqrt(40 * 30) / math.sqrt(3 * 40), rel=1e-6)


def test_under_weight_norm_the_gain_is_scaled():
    net = nn.Sequential(weight_norm(nn.Linear(5, 4)), nn.ReLU(), nn.Linear(4, 3))
    start = copy.deepcopy(net)
    with torch.no_grad():
        net[0].parametrizations.weight.original0.mul_(4.0)
    direction = net[0].parametrizations.weight.original1.detach().clone()
    record = rk.rescale_(net, example=torch.zeros(1, 5), reference=start)
    assert torch.allclose(net[0].weight, start[0].weight) and torch.allclose(net[2].bias, start[2].bias / 4)
    assert torch.equal(net[0].parametrizations.weight.original1, direction)
    assert any("gain" in skip.reason for skip in record.skips)


def test_batch_norm_statistics_go_along():
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).eval()
    start, x = copy.deepcopy(net), torch.randn(8, 5)
    with torch.no_grad():
        net[0].weight.mul_(3.0)
        net[0].bias.mul_(3.0)
        net[1].running_mean.normal_()
        net[1].running_var.fill_(9.0)
    mean = net[1].running_mean.clone()
    before = net(x)
    record = rk.rescale_(net, example=x, reference=start)
    assert torch.allclose(net[1].running_mean, mean / 3) and torch.allclose(net[1].running_var, torch.ones(4))
    assert torch.allclose(net(x), before, rtol=1e-4, atol=1e-5)
    assert not any("stale" in notice for notice in record.notices)


def test_what_enters_a_gelu_keeps_its_size():
    net = nn.Sequential(nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 3))
    start, x = copy.deepcopy(net), torch.randn(8, 5)
    with torch.no_grad():
        net[0].weight.mul_(3.0)
        net[2].weight.mul_(2.0)
    before, first = net(x), net[0].weight.detach().clone()
    record = rk.rescale_(net, example=x, reference=start)
    assert torch.equal(net[0].weight, first) and torch.allclose(net[2].weight, start[2].weight)
    assert torch.allclose(net(x), before / 2, atol=1e-6)
    assert {skip.tensor for skip in record.skips} == {"0.weight", "0.bias"}
    assert all("1: aten.gelu" in skip.reason for skip in record.skips) and "not positively homogeneous" in str(
        record.notices
    )


def test_where_nothing_can_be_scaled_it_warns():
    net = nn.Sequential(nn.Linear(5, 4), nn.Sigmoid())
    with pytest.warns(NoEffectWarning, match="fixed at one"):
        record = rk.rescale_(net, example=torch.zeros(1, 5))
    assert record.changed == 0


def test_it_asks_for_an_example():
    with pytest.raises(PlanError) as caught:
        rk.rescale_(nn.Linear(3, 2))
    assert "example=" in str(caught.value) and "proportional=False" in caught.value.fix
    record = rk.rescale_(nn.Linear(3, 2), proportional=False)
    assert record.changed == 6 and "example=" in str(record.notices)


def test_skipped_tensors_stay_and_the_function_is_kept():
    member = zoo(["mlp"])[0]
    model, x = grown(member.build()), member.example()
    before = run(model, x)
    first = next(model.parameters()).detach().clone()
    record = rk.rescale_(model, graph=graph_of(member), reference=member.build, skip=("layers.0.weight",))
    after = run(model, x)
    constant = float((before @ after) / (before @ before))
    assert torch.allclose(after, constant * before, rtol=1e-9)
    assert torch.equal(next(model.parameters()), first) and constant != pytest.approx(1.0)
    assert [skip.tensor for skip in record.skips if skip.reason == "named in skip"] == ["layers.0.weight"]


def test_a_weight_of_unknown_start_is_listed():
    member = zoo(["mlp_functional"])[0]
    with pytest.warns(NoEffectWarning, match="reference="):
        record = rk.apply_("rescale", member.build(), graph=graph_of(member))
    assert any("not known" in skip.reason for skip in record.skips)


def test_zero_weights_ask_for_nothing():
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    start = copy.deepcopy(net)
    with torch.no_grad():
        net[0].weight.zero_()
        net[2].weight.mul_(2.0)
    rk.rescale_(net, example=torch.zeros(1, 5), reference=start)
    assert not net[0].weight.any() and torch.allclose(net[2].weight, start[2].weight)
