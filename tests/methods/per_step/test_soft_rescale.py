"""Soft Weight Rescaling: by hand, against Algorithm 1 as a plain loop, its settings, and what a step takes."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import rekindle as rk
from rekindle.errors import KeeperError, NoEffectWarning, PlanError, SettingsError
from rekindle.graph.scaling.solve import wishes_of
from rekindle.lab.models import MLP
from rekindle.methods.per_step.soft_rescale import SoftRescale
from rekindle.testing.aged import bits, graph_of, same
from rekindle.testing.zoo import zoo
from tests.methods.one_shot.test_rescale import grown, run

SOME = ["mlp_functional", "resnet_basic", "densenet", "vit_mha", "gpt2", "tied_autoencoder", "weight_norm_mlp"]
MEMBERS = [pytest.param(member, id=member.name) for member in zoo(SOME)]


def once(model, method="soft_rescale:strength=0.5", reference=None, **given):
    """One call through the Keeper."""
    rk.Keeper(model, None, method, reference=reference, **given).step()
    return model


def two_layers():
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))


def test_two_layers_by_hand():
    net, names = two_layers(), ("0.weight", "0.bias", "2.weight", "2.bias")
    start = dict(zip(names, ([[1.0, 0.0], [0.0, 0.0]], [0.0, 0.0], [[0.6, 0.8]], [0.0]), strict=True))
    now = dict(zip(names, ([[0.0, 3.0], [4.0, 0.0]], [5.0, -10.0], [[0.0, 2.0]], [7.0]), strict=True))
    net.load_state_dict({name: torch.tensor(value) for name, value in now.items()})
    once(net, example=torch.zeros(1, 2), reference={name: torch.tensor(value) for name, value in start.items()})
    # c_1 = (1/2 + 5/2)/5 = 3/5, c_2 = (1/2 + 2/2)/2 = 3/4, C = 9/20
    assert torch.allclose(net[0].weight, torch.tensor([[0.0, 1.8], [2.4, 0.0]]))
    assert torch.allclose(net[0].bias, torch.tensor([3.0, -6.0]))
    assert torch.allclose(net[2].weight, torch.tensor([[0.0, 1.5]]))
    assert torch.allclose(net[2].bias, torch.tensor([3.15]))


def algorithm_1(old, start, strength):
    """The paper's loop on a chain without normalization: names in order, each weight before its bias."""
    new, product = {}, 1.0
    for name, tensor in old.items():
        if name.endswith("weight"):
            norm = float(tensor.double().norm())
            factor = (strength * float(start[name].double().norm()) + (1 - strength) * norm) / norm
            product *= factor
            new[name] = tensor * factor
        else:
            new[name] = tensor * product
    return new


def test_a_deep_chain_follows_algorithm_1():
    member = zoo(["vgg"])[0]
    start, model = member.build(), grown(member.build())
    wanted = algorithm_1(bits(model), bits(start), 0.3)
    once(model, "soft_rescale:strength=0.3", graph=graph_of(member), reference=start)
    for name, tensor in bits(model).items():
        assert torch.allclose(tensor, wanted[name], rtol=1e-10), name


def test_normalization_layers_count_as_weight_and_bias():
    net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).double().eval()
    start = copy.deepcopy(net)
    with torch.no_grad():
        net[0].weight.mul_(3.0)
        net[1].weight.mul_(2.0)
        net[1].bias.normal_()
        net[1].running_mean.normal_()
        net[3].weight.mul_(5.0)
    old = bits(net)
    once(net, example=torch.zeros(2, 5).double(), reference=start)
    one, two, three = (0.5 + 1.5) / 3, (0.5 + 1.0) / 2, (0.5 + 2.5) / 5
    factors = {"0.weight": one, "0.bias": one, "1.running_mean": one, "1.running_var": one**2, "1.weight": two}
    factors |= {"1.bias": two, "3.weight": three, "3.bias": two * three, "1.num_batches_tracked": 1}
    for name, tensor in bits(net).items():
        assert torch.allclose(tensor, old[name] * factors[name], rtol=1e-12), name


# --- other settings ---


@pytest.mark.parametrize("member", MEMBERS)
def test_each_for_itself(member):
    """proportional=False: each weight has its c_l, also the parts of a fused one, and everything else stays."""
    start, model, graph = member.build().double(), grown(member.build()), graph_of(member)
    old, first = bits(model), bits(start)
    once(model, "soft_rescale:strength=0.25,proportional=False", graph=graph, reference=start)
    wanted = {name: tensor.clone() for name, tensor in old.items()}
    for wish in wishes_of(graph):
        part, before = wish.where.read(old[wish.tensor]), wish.where.read(first[wish.tensor])
        factor = (0.25 * before.norm() + 0.75 * part.norm()) / part.norm()
        wanted[wish.tensor] = wish.where.write(wanted[wish.tensor], part * factor)
    for name, tensor in bits(model).items():
        assert torch.allclose(tensor, wanted[name], rtol=1e-10), name


def test_each_for_itself_needs_no_example():
    net = two_layers()
    start = copy.deepcopy(net)
    with torch.no_grad():
        net[2].weight.mul_(3.0)
    once(net, "soft_rescale:strength=0.5,proportional=False", reference=start)
    assert torch.allclose(net[2].weight, 2 * start[2].weight) and torch.equal(net[2].bias, start[2].bias)


def changes_of(settings, name="vgg"):
    """Which weights change when all have tripled, and by what factor."""
    member = zoo([name])[0]
    model, start = member.build().double(), member.build()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3.0)
    old = bits(model)
    once(model, f"soft_rescale:{settings}", graph=graph_of(member), reference=start)
    found = {
        wish.tensor: float(bits(model)[wish.tensor].norm() / old[wish.tensor].norm())
        for wish in wishes_of(graph_of(member))
    }
    return {tensor: round(factor, 6) for tensor, factor in found.items()}


def test_features_and_classifier_have_strengths_of_their_own():
    weak, strong = round((0.1 + 0.9 * 3) / 3, 6), round((0.5 + 0.5 * 3) / 3, 6)
    last = changes_of("strength_features=0.1,strength_classifier=0.5")
    assert {tensor for tensor, factor in last.items() if factor == strong} == {"classifier.4.weight"}
    assert set(last.values()) == {weak, strong}
    full = changes_of("strength=0.5,strength_features=0.1,classifier=all")
    assert {tensor for tensor, factor in full.items() if factor == strong} == {
        "classifier.0.weight",
        "classifier.2.weight",
        "classifier.4.weight",
    }
    assert set(changes_of("strength=0.1").values()) == {weak}


def test_skipped_and_frozen_tensors_stay_and_the_function_is_kept():
    member = zoo(["mlp"])[0]
    model, x = grown(member.build()), member.example()
    model.layers[1].weight.requires_grad_(False)
    old, before = bits(model), run(model, x)
    once(model, "soft_rescale:strength=0.5,skip=layers.0.*", graph=graph_of(member), reference=member.build)
    after = run(model, x)
    constant = float((before @ after) / (before @ before))
    assert torch.allclose(after, constant * before, rtol=1e-9) and constant != pytest.approx(1.0)
    stay = {name for name, tensor in bits(model).items() if torch.equal(tensor, old[name])}
    assert stay == {"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"}


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_what_is_zero_or_starts_at_zero_or_is_not_finite_stays(strength):
    net = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(4)))
    start = copy.deepcopy(net)
    with torch.no_grad():
        start[0].weight.zero_()
        net[1].weight.zero_()
        net[2].weight[0, 0] = math.nan
        net[3].weight.mul_(2.0)
    old = bits(net)
    once(net, SoftRescale(strength=strength), example=torch.zeros(1, 4), reference=start)
    same({n: t for n, t in old.items() if n != "3.weight"}, {n: t for n, t in bits(net).items() if n != "3.weight"}, "")
    assert torch.allclose(net[3].weight, (2 - strength) * start[3].weight)


@pytest.mark.parametrize("member", MEMBERS)
def test_identity_changes_nothing(member):
    model = grown(member.build())
    old = bits(model)
    once(model, SoftRescale(**SoftRescale.identity), graph=graph_of(member), reference=member.build)
    same(old, bits(model), "changed:")


def test_weights_at_their_start_are_left_bit_by_bit():
    member = zoo(["resnet_basic"])[0]
    model = member.build()
    old = bits(model)
    once(model, "soft_rescale:strength=0.7", graph=graph_of(member))
    same(old, bits(model), "changed:")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_weights_are_measured_in_float32(dtype):
    net = nn.Linear(600, 600, bias=False)
    with torch.no_grad():
        net.weight.fill_(0.25)
    start = copy.deepcopy(net)
    with torch.no_grad():
        net.weight.fill_(200.0)  # norm 120000, beyond float16
    net = once(net.to(dtype), "soft_rescale:strength=1", example=torch.zeros(1, 600, dtype=dtype), reference=start)
    assert torch.equal(net.weight, torch.full_like(net.weight, 0.25))


# --- at the door ---


def test_it_asks_for_an_example():
    with pytest.raises(KeeperError, match="example=.*hang together"):
        rk.Keeper(two_layers(), None, "soft_rescale")
    with pytest.raises(KeeperError, match="which layers are the classifier"):
        rk.Keeper(two_layers(), None, "soft_rescale:proportional=False,strength_classifier=0.5")


def test_wrong_settings_and_references_are_refused():
    with pytest.raises(SettingsError, match="strength"):
        rk.method("soft_rescale:strength=1.5")
    with pytest.raises(SettingsError, match="rebase_on_drop"):
        rk.method("soft_rescale:rebase_on_drop=1")
    with pytest.raises(PlanError, match=r"2\.weight of shape"):
        once(two_layers(), example=torch.zeros(1, 2), reference={"0.weight": torch.ones(2, 2)})
    spread = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    spread.register_buffer("elsewhere", torch.zeros(2, device="meta"))
    with pytest.raises(KeeperError, match="cpu, meta"):
        once(spread, "soft_rescale:proportional=False")


def test_where_nothing_can_be_scaled_it_warns():
    with pytest.warns(NoEffectWarning, match="fixed at one"):
        keeper = rk.Keeper(
            nn.Sequential(nn.Linear(5, 4), nn.Sigmoid()), None, "soft_rescale", example=torch.zeros(1, 5)
        )
    keeper.step()
    keeper.rebase()
    keeper.load_state_dict(keeper.state_dict())


# --- what it takes ---


class Calls(TorchDispatchMode):
    """Every operation that reaches the device."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def calls(keeper):
    with Calls() as seen:
        keeper.step()
    return seen.names


def test_a_step_is_a_few_fused_operations_and_never_waits():
    few, many = (
        rk.Keeper(MLP([3, *[4] * depth, 2]), None, "soft_rescale", example=torch.zeros(1, 3)) for depth in (1, 12)
    )
    assert calls(few) == calls(many) and len(calls(few)) <= 10
    member = zoo(["vit_fused"])[0]
    fused = calls(rk.Keeper(member.build(), None, "soft_rescale:proportional=False", graph=graph_of(member)))
    assert {"_foreach_norm", "index_select", "_foreach_mul_"} <= set(fused) and "index" not in fused
    assert not {"_local_scalar_dense", "nonzero", "_to_copy"} & {*calls(few), *fused}
