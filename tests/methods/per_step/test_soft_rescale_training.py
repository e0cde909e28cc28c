"""Soft Weight Rescaling inside training loops of all kinds: Algorithm 1 is followed, rebased, saved and resumed."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rekindle as rk
from rekindle.errors import KeeperError
from rekindle.lab.models import MLP
from rekindle.testing.aged import bits, graph_of, learn, overwrite, same
from rekindle.testing.zoo import zoo
from tests.methods.per_step.test_soft_rescale import algorithm_1, two_layers


def plain(net, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()


def clipped(net, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(net(x), y).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()


def accumulated(net, optimizer, x, y):
    optimizer.zero_grad()
    for part in range(4):
        (F.cross_entropy(net(x[part::4]), y[part::4]) / 4).backward()
    optimizer.step()


def autocast(net, optimizer, x, y):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()


def scaled():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def step(net, optimizer, x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


LOOPS = {"plain": plain, "clipped": clipped, "accumulated": accumulated, "autocast": autocast, "scaled": scaled()}


def batch():
    draw = torch.Generator().manual_seed(1)
    return torch.randn(32, 8, generator=draw), torch.randint(5, (32,), generator=draw)


@pytest.mark.parametrize(
    ("loop", "compiled"), [*((loop, False) for loop in LOOPS), ("plain", True), ("autocast", True)]
)
def test_every_kind_of_loop_follows_algorithm_1(loop, compiled):
    torch.manual_seed(0)
    inner, (x, y) = MLP([8, 16, 12, 5]), batch()
    net = torch.compile(inner, backend="aot_eager") if compiled else inner
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
    start = bits(inner)
    keeper = rk.Keeper(net, optimizer, "soft_rescale:strength=0.1", example=x[:2])
    for _ in range(5):
        LOOPS[loop](net, optimizer, x, y)
        wanted = algorithm_1(bits(inner), start, 0.1)
        assert not torch.equal(wanted["layers.0.weight"], inner.layers[0].weight)
        keeper.step()
        for name, tensor in bits(inner).items():
            assert torch.allclose(tensor, wanted[name], rtol=1e-5, atol=1e-7), name


def trained(method, steps=400):
    torch.manual_seed(0)
    net, (x, y) = MLP([8, 32, 32, 5]), batch()
    start = [float(p.detach().norm()) for p in net.parameters() if p.ndim == 2]
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    keeper = rk.Keeper(net, optimizer, method, example=x)
    for _ in range(steps):
        plain(net, optimizer, x, y)
        keeper.step()
    norms = [float(p.detach().norm()) for p in net.parameters() if p.ndim == 2]
    return [now / first for now, first in zip(norms, start, strict=True)], float((net(x).argmax(1) == y).float().mean())


def test_norms_stay_near_the_start_where_plain_training_makes_them_grow():
    grows, _ = trained(())
    stays, accuracy = trained("soft_rescale:strength=0.1")
    assert min(grows) > 1.5 and max(stays) < 1.2 and accuracy > 0.8  # five classes, labels at random


@pytest.mark.parametrize("with_optimizer", [False, True])
def test_rebase_by_hand(with_optimizer):
    net = two_layers()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1) if with_optimizer else None
    keeper = rk.Keeper(net, optimizer, "soft_rescale:strength=1", example=torch.zeros(1, 2))
    with torch.no_grad():
        net[0].weight.mul_(3.0)
    old = bits(net)
    keeper.rebase()
    keeper.step()
    same(old, bits(net), "changed:")
    with torch.no_grad():
        net[0].weight.mul_(2.0)
    keeper.step()
    assert torch.allclose(net[0].weight, old["0.weight"])


def test_when_the_rate_of_a_group_drops_its_weights_are_rebased():
    net = two_layers()
    groups = [{"params": net[0].parameters(), "lr": 1.0}, {"params": net[2].parameters(), "lr": 1.0}]
    optimizer = torch.optim.SGD(groups)
    start = copy.deepcopy(net)
    keeper = rk.Keeper(net, optimizer, "soft_rescale:strength=1", example=torch.zeros(1, 2))

    def grow():
        with torch.no_grad():
            net[0].weight.mul_(2.0)
            net[2].weight.mul_(2.0)
        keeper.step()

    grow()
    assert torch.allclose(net[0].weight, start[0].weight) and torch.allclose(net[2].weight, start[2].weight)
    optimizer.param_groups[0]["lr"] = 0.1
    for _ in range(2):  # at the drop it is taken as it is, and held there from then on
        grow()
        assert torch.allclose(net[0].weight, 2 * start[0].weight) and torch.allclose(net[2].weight, start[2].weight)
    optimizer.param_groups[0]["lr"] = 1.0  # a new stage
    grow()
    assert torch.allclose(net[0].weight, start[0].weight)


@pytest.mark.parametrize("off", ["none", "0"])
def test_it_can_be_kept_from_rebasing(off):
    net = two_layers()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    start = copy.deepcopy(net)
    keeper = rk.Keeper(net, optimizer, f"soft_rescale:strength=1,rebase_on_drop={off}", example=torch.zeros(1, 2))
    keeper.step()
    optimizer.param_groups[0]["lr"] = 0.01
    with torch.no_grad():
        net[0].weight.mul_(2.0)
    keeper.step()
    assert torch.allclose(net[0].weight, start[0].weight)


@pytest.mark.parametrize("at", [3, 5])  # just before the rate drops, and before it is back
@pytest.mark.parametrize("name", ["mlp", "resnet_basic", "vit_fused"])
def test_a_resumed_run_is_bit_equal(name, at):
    member, method = zoo([name])[0], "soft_rescale:strength=0.05"

    def parts(again=False):
        model = member.build()
        if again:  # whoever resumes may start from anything
            overwrite(model, lambda values: 1.5 * values)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.1 if 3 <= step < 6 else 1.0)
        return model, optimizer, schedule, rk.Keeper(model, optimizer, method, graph=graph_of(member))

    def go_on(model, optimizer, schedule, keeper, steps):
        for _ in range(steps):
            learn(model, member.example(), optimizer)
            keeper.step()
            schedule.step()

    whole = parts()
    go_on(*whole, at)
    saved = [copy.deepcopy(part.state_dict()) for part in whole]
    go_on(*whole, 5)
    again = parts(again=True)
    for part, state in zip(again, saved, strict=True):
        part.load_state_dict(state)
    go_on(*again, 5)
    same(bits(whole[0]), bits(again[0]), "not resumed:")


def test_a_state_of_another_model_is_refused():
    keeper, other_keeper = (
        rk.Keeper(MLP(sizes), None, "soft_rescale", example=torch.zeros(1, 3)) for sizes in ([3, 4, 2], [3, 4, 4, 2])
    )
    with pytest.raises(KeeperError, match="for 2 weights"):
        keeper.load_state_dict(other_keeper.state_dict())
