"""Every recycler, on every zoo model, keeps every promise."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import rekindle as rk
from rekindle.edits.transaction import prepare
from rekindle.graph.calls.inputs import as_call
from rekindle.graph.modules import tensors_of
from rekindle.methods.recycling import not_cut_off, recyclable, recycle
from rekindle.observe.read_points import find_read_points
from rekindle.testing import ZOO
from rekindle.testing.aged import aged, bits, hooks, learn, memory, same

# Settings with which units (or weights) are recycled within a few steps.
EAGER = {
    "redo": "redo:period=1,threshold=0.9",
    "cbp": "cbp:rate=0.4,maturity=0",
    "snr": "snr:longest=1,firings=50",
    "regrama": "regrama:period=2,threshold=0.9",
    "selective_reinit": "selective_reinit:period=1,rate=0.1",
}
OVER_UNITS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
OF_UNITS = sorted(set(EAGER) - {"selective_reinit"})  # which draws single weights
RECYCLED_ALONE = sorted(set(EAGER) - {"snr"})  # the others recycle whatever the data; snr waits for silence


@pytest.fixture(params=ZOO)
def member(request):
    if ZOO[request.param].requires:
        pytest.importorskip(ZOO[request.param].requires)
    return ZOO[request.param]


def outputs(model, example):
    args, kwargs = as_call(model, example)
    with torch.no_grad():
        found = pytree.tree_leaves(model(*args, **kwargs))
    return [x for x in found if isinstance(x, Tensor) and x.is_floating_point()]


def recycled(member, units=(0, -1)):
    """Return an aged model with some units of every group recycled, and how all of it was before."""
    model, graph, optimizer = aged(member)
    groups, left = recyclable(graph)
    chosen = {group.name: torch.tensor(sorted({unit % group.size for unit in units})) for group in groups}
    chosen = not_cut_off(graph, chosen)
    live, before, moments = tensors_of(model), bits(model), memory(model, optimizer)
    edits = recycle(graph, chosen, "test", 0, model)
    prepare(edits, model, optimizers=[optimizer], aliases=graph.aliases).commit()
    assert all(tensors_of(model)[name] is tensor for name, tensor in live.items()), "a tensor was replaced by a copy"
    return model, graph, optimizer, chosen, before, moments


def masks(graph, chosen, before, *kinds):
    """Return which elements belong to the chosen units, by tensor."""
    found: dict[str, Tensor] = {}
    for name, units in chosen.items():
        for kind in kinds:
            for slot in getattr(graph.group(name), kind):
                mask = slot.where.at(units).mask(before[slot.tensor])
                found[slot.tensor] = found[slot.tensor] | mask if slot.tensor in found else mask
    return found


def test_incoming_is_fresh_norms_neutral_outgoing_silent_and_nothing_else_changed(member):
    model, graph, _, chosen, before, _ = recycled(member)
    after = bits(model)
    incoming = masks(graph, chosen, before, "incoming")
    outgoing = masks(graph, chosen, before, "outgoing")
    norms = masks(graph, chosen, before, "norms")
    for name, silent in outgoing.items():
        assert not after[name][silent].any(), f"{name} is not silent"
        assert before[name][silent].all()
    for name, mask in incoming.items():
        here = mask & ~outgoing.get(name, torch.zeros_like(mask))
        fresh = graph.fresh(name, tuple(before[name].shape), 0, "test")
        if name not in graph.gains:
            assert torch.equal(after[name][here], fresh[here]), f"{name} was not drawn by its own initializer"
        constant = not fresh.std() > 0
        assert constant or not (after[name][here] == before[name][here]).any(), f"{name} was not drawn"
    for name in chosen:
        for slot in graph.group(name).norms:
            part = slot.where.at(chosen[name]).read(after[slot.tensor])
            assert (part == slot.neutral).all(), f"{slot.tensor} is not neutral"
    for name, old in before.items():
        touched = torch.zeros_like(old, dtype=torch.bool)
        for found in (incoming, outgoing, norms):
            touched |= found.get(name, torch.zeros_like(touched))
        if name not in graph.gains:  # of a reader under weight_norm, whose other weights must keep their size
            assert torch.equal(after[name][~touched], old[~touched]), f"{name} changed elsewhere"


def test_moments_of_exactly_those_elements_are_cleared(member):
    model, graph, optimizer, chosen, before, moments = recycled(member)
    stale = masks(graph, chosen, before, "incoming", "norms", "outgoing")
    assert not chosen or any(mask.any() for mask in stale.values())
    for key, after in memory(model, optimizer).items():
        region = stale.get(key.partition("|")[0], torch.zeros(after.shape, dtype=torch.bool))
        region = torch.zeros((), dtype=torch.bool) if not after.dim() else region  # the step counter goes on
        assert not after[region].any(), f"{key} was not cleared"
        assert torch.equal(after[~region], moments[key][~region]), f"{key} was cleared elsewhere"


def scrambled(where, dim):
    """Return a hook that puts noise in place of some features of what a module is given."""

    def scramble(module, args):
        x = args[0].clone()
        columns = where.index.reshape(-1)
        shape = list(x.shape)
        shape[dim] = len(columns)
        x.index_copy_(dim, columns, 100 * torch.randn(shape, dtype=x.dtype))
        same_for_all = [x if arg is args[0] else arg for arg in args[1:]]
        return (x, *same_for_all)

    return scramble


def test_no_reader_depends_on_what_recycled_units_say(member):
    model, graph, _, chosen, _, _ = recycled(member)
    model.eval()
    expected = outputs(model, member.example())
    points = find_read_points(model, [graph.group(name) for name in chosen], member.example())[0]
    slots = {(name, slot.tensor): slot for name in chosen for slot in graph.group(name).outgoing}
    handles = []
    for point in points:
        if point.reader.side != "input":  # what a recurrent layer says to itself has no hook to change it
            continue
        for tensor in point.tensors:
            slot = slots[point.group, tensor]
            module, where = model.get_submodule(slot.module), slot.where.at(chosen[point.group])
            dim = 1 if point.reader.channels_first else -1
            handles.append(module.register_forward_pre_hook(scrambled(where, dim)))
    for found, value in zip(outputs(model, member.example()), expected, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-6)
    assert handles or not points


def test_the_output_does_not_depend_on_fresh_weights_unless_a_norm_counts_over_units(member):
    model, graph, _, chosen, _, _ = recycled(member)
    model.eval()
    expected = outputs(model, member.example())
    free = {name: units for name, units in chosen.items() if not counted_by_a_norm(model, graph.group(name))}
    live = tensors_of(model)
    with torch.no_grad():
        for name, units in free.items():
            for slot in graph.group(name).incoming:
                where = slot.where.at(units)
                part = where.read(live[slot.tensor])
                live[slot.tensor].copy_(where.write(live[slot.tensor], part + torch.randn_like(part)))
    for found, value in zip(outputs(model, member.example()), expected, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-6)


def counted_by_a_norm(model, group):
    owners = [model.get_submodule(slot.tensor.rpartition(".")[0]) for slot in group.norms]
    return any(isinstance(owner, OVER_UNITS) or "RMSNorm" in type(owner).__name__ for owner in owners)


def test_a_norm_over_units_does_count_a_fresh_unit():
    """What the exception of the test above is about."""
    member = ZOO["layer_norm_mlp"]
    model, graph, _, chosen, _, _ = recycled(member)
    assert counted_by_a_norm(model, graph.group("fc1"))
    (expected,) = outputs(model, member.example())
    with torch.no_grad():
        model.fc1.weight[0] += 3.0
    (found,) = outputs(model, member.example())
    assert not torch.allclose(found, expected)


def test_recycled_units_learn_again(member):
    model, graph, optimizer, chosen, _, _ = recycled(member, (0, 1, -1))
    for _ in range(2):  # a unit that only recycled ones read has to wait for them
        learn(model, member.example(), optimizer)
    for name, units in chosen.items():
        for slot in graph.group(name).outgoing:
            part = slot.where.at(units).read(tensors_of(model)[slot.tensor].detach())
            assert part.any(), f"{slot.tensor} did not move"


# Each method in a Keeper.


def dying():
    """A network with dead units in both hidden layers, so that every recycler has something to do."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 9), nn.ReLU(), nn.Linear(9, 3))
    with torch.no_grad():
        net[0].bias[2] = net[2].bias[4] = -100.0
    return net, torch.randn(12, 5)


def train(key, *, wrap=lambda net: net, between=lambda net, x: None, halves=False, precision=None, steps=4):
    net, x = dying()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    keeper = rk.Keeper(net, optimizer, EAGER[key], example=x)
    called = wrap(net)
    for _ in range(steps):
        optimizer.zero_grad()
        for part in x.split(6 if halves else 12):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision is not None):
                loss = called(part).float().square().mean() * len(part) / len(x)
            loss.backward()
            between(net, x)
        optimizer.step()
        keeper.step()
    keeper.close()
    assert not any(hooks(net))
    return net, keeper


@pytest.mark.parametrize("key", OF_UNITS)
def test_dead_units_come_back(key):
    net, keeper = train(key)
    assert keeper.recycled["0"] and keeper.recycled["2"]
    assert net[0].bias[2] > -1 and net[2].bias[4] > -1


@pytest.mark.parametrize("key", EAGER)
def test_accumulated_gradients(key):
    (whole, kept), (halves, other) = train(key), train(key, halves=True)
    assert kept.recycled == other.recycled
    for one, another in zip(whole.parameters(), halves.parameters(), strict=True):
        torch.testing.assert_close(one, another, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("key", EAGER)
def test_bfloat16_autocast(key):
    net, keeper = train(key, precision=torch.bfloat16)
    assert all(torch.isfinite(p).all() for p in net.parameters())
    assert key == "selective_reinit" or keeper.recycled["0"] and keeper.recycled["2"]


@pytest.mark.parametrize("key", EAGER)
def test_compiled_models(key):
    torch._dynamo.reset()
    compiled, keeper = train(key, wrap=lambda net: torch.compile(net, backend="eager"))
    plain, other = train(key)
    assert keeper.recycled == other.recycled
    same(bits(plain), bits(compiled), "compiled, another")
