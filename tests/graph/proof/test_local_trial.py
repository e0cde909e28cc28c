"""The quick proof: what the plain one says, what that one misses, and work that grows with the model only."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.errors import GraphError
from rekindle.graph import UnitGraph, trace
from rekindle.graph.proof.local_trial import LocalTrial
from rekindle.graph.proof.tape import Unfollowable
from rekindle.graph.proof.whole_trial import WholeTrial
from rekindle.graph.verification import closure_of, judge, unprovable
from rekindle.testing.zoo import ZOO
from tests.graph.operation_cases import L, Net, data
from tests.graph.test_operations import CASES
from tests.graph.test_verification import broken, without_reader

# What no trial can see: a bias of keys adds the same to all scores of a query.
SHIFTS = ("k.bias", "qkv.bias", "c_attn.bias", "in_proj_bias")
# Its incoming weights are silent, being readers of what it passes into; its biases alone do not pass LayerNorm.
TOO_SILENT = {("mixer", "blocks.1.token_fc1.weight")}


def zoo(name: str):
    if ZOO[name].requires:
        pytest.importorskip(ZOO[name].requires)
    return ZOO[name].build(), ZOO[name].example()


def verdicts(trial: LocalTrial | WholeTrial, graph: UnitGraph) -> dict[str, str | None]:
    closures = {group: closure_of(graph, group) for group in graph.groups}
    with torch.no_grad():
        return {g.name: judge(trial, g, closure, 0) for g, closure in closures.items() if not unprovable(closure)}


@pytest.mark.parametrize("name", list(ZOO))
def test_it_says_what_the_plain_proof_says_of_the_zoo(name):
    model, example = zoo(name)
    graph = trace(model, example)
    local, whole = (kind(model, example, graph.gains) for kind in (LocalTrial, WholeTrial))
    assert verdicts(local, graph) == verdicts(whole, graph)


@pytest.mark.parametrize("case", [param.values[0] for param in CASES], ids=lambda case: case.name)
def test_it_says_what_the_plain_proof_says_of_each_operation(case):
    model = case.model()
    graph = trace(model, case.example)
    local, whole = (kind(model, case.example, graph.gains) for kind in (LocalTrial, WholeTrial))
    assert verdicts(local, graph) == verdicts(whole, graph)


@pytest.mark.parametrize("name", list(ZOO))
def test_every_reader_that_is_forgotten_is_found(name):
    """Also one that only writes into the units it reads, which the output does not show."""
    model, example = zoo(name)
    graph = trace(model, example)
    trial = LocalTrial(model, example, graph.gains)
    missed = set()
    for group in graph.groups:
        for slot in group.outgoing:
            wrong = without_reader(group, slot)
            closure = closure_of(broken(graph, group.name, outgoing=wrong.outgoing), wrong)
            if not unprovable(closure) and not is_refuted(trial, wrong, closure):
                missed.add((name, slot.tensor))
    assert {each for each in missed if not each[1].endswith(SHIFTS)} <= TOO_SILENT


def is_refuted(trial, group, closure) -> bool:
    try:
        with torch.no_grad():
            trial.refute(group, closure, 0)
    except GraphError as error:
        assert group.name in str(error)
        return True
    return False


@pytest.mark.parametrize("reader", ["h.0.mlp.c_fc.weight", "h.1.attn.c_attn.weight"])
def test_a_reader_inside_a_residual_stream_is_named(reader):
    model, example = zoo("gpt")
    graph = trace(model, example)
    stream = next(g for g in graph.groups if g.kind == "stream")
    (slot,) = [slot for slot in stream.outgoing if slot.tensor == reader]
    wrong = broken(graph, stream.name, outgoing=without_reader(stream, slot).outgoing)
    with pytest.raises(GraphError, match=f"{reader.removesuffix('.weight')}: aten.addmm"):
        wrong.verify(model, example)


def test_constants_in_a_stream_do_not_hide_a_reader():
    """Positions that are added as constants change places with no unit: LayerNorm mixes what is exchanged a little."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n, self.a, self.b = nn.LayerNorm(12), L(12, 9), L(9, 12)

        def forward(self, x):
            return x + self.b(torch.relu(self.a(self.n(x))))

    torch.manual_seed(0)
    parts = {"e": L(4, 12), "p": torch.randn(5, 12), "x": Block(), "y": Block(), "h": L(12, 2)}
    net = Net(lambda m, x: m.h(m.y(m.x(m.e(x) + m.p))), parts)
    graph = trace(net, data(2, 5, 4))
    assert "e" in graph.verify(net, data(2, 5, 4)).proved
    stream = graph.group("e")
    for slot in stream.outgoing:
        with pytest.raises(GraphError):
            broken(graph, "e", outgoing=without_reader(stream, slot).outgoing).verify(net, data(2, 5, 4))


def test_a_tied_embedding_does_not_hide_the_first_readers():
    """Silent as the output layer, it still is disturbed where tokens are looked up."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.a, self.b = nn.Embedding(9, 8), nn.Linear(8, 6), nn.Linear(6, 8)

        def forward(self, ids):
            x = self.table(ids)
            return (x + self.b(torch.relu(self.a(x)))) @ self.table.weight.t()

    torch.manual_seed(0)
    model, ids = Tied(), torch.arange(9)[None]
    graph = trace(model, ids)
    stream = graph.group("table")
    assert "table" in graph.verify(model, ids).proved
    (slot,) = [slot for slot in stream.outgoing if slot.tensor == "a.weight"]
    with pytest.raises(GraphError, match="a: aten"):
        broken(graph, "table", outgoing=without_reader(stream, slot).outgoing).verify(model, ids)


def test_what_carries_units_along_is_no_reader():
    """A layer over tokens sees a change of channels, and passes it on channel by channel."""
    net = Net(lambda m, x: m.h(m.t(m.e(x).transpose(1, 2)).mean(-1)), {"e": L(4, 6), "t": L(3, 5), "h": L(6, 2)})
    graph = trace(net, data(2, 3, 4))
    assert "e" in graph.verify(net, data(2, 3, 4)).proved


# Work -----------------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.a, self.b = nn.LayerNorm(8), nn.Linear(8, 6), nn.Linear(6, 8)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(self.n(x))))


def residual(depth: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), *(Residual() for _ in range(depth)), nn.Linear(8, 2))


def chain(depth: int) -> nn.Module:
    layers = [layer for _ in range(depth - 1) for layer in (nn.Linear(8, 8), nn.Tanh())]
    return nn.Sequential(nn.Linear(4, 8), *layers, nn.Linear(8, 2))


def attentive(depth: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(4, 8), encoder, nn.Linear(8, 2))


@pytest.mark.parametrize(
    ("build", "depths"), [(residual, (8, 16, 32)), (chain, (50, 100, 200)), (attentive, (2, 4, 8))]
)
def test_work_grows_in_proportion_to_depth(build, depths):
    counts = []
    for depth in depths:
        model, example = build(depth), data(2, 3, 4)
        graph = trace(model, example)
        trial = LocalTrial(model, example, graph.gains)
        assert set(verdicts(trial, graph).values()) == {None}
        counts.append(trial.tape.evaluations)
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert first > 0 and second == pytest.approx(2 * first, rel=0.02)


# What cannot be followed ----------------------------------------------------------------------------------------------


def test_what_python_takes_out_of_torch_is_noticed():
    def forward(m, x):
        return m.h(m.e(x) * max(m.e.bias.tolist()))

    net = Net(forward, {"e": L(4, 6), "h": L(6, 2)})
    with pytest.raises(Unfollowable, match="something else"):
        LocalTrial(net, data(3, 4), {})


@pytest.mark.parametrize("room", [1e9, 1e-2])
def test_a_branch_that_the_units_decide_is_noticed(room):
    torch.manual_seed(0)
    plain = Net(lambda m, x: m.h(m.e(x)), {"e": L(4, 6), "h": L(6, 2)})
    middle = plain.e(data(3, 4))[0, 0].item()
    net = Net(lambda m, x: plain(x) if bool((m.p.e(x)[0, 0] - middle).abs() < room) else -plain(x), {"p": plain})
    trial, group = LocalTrial(net, data(3, 4), {}), trace(nn.Sequential(plain), data(3, 4)).group("0.e")
    group = replace(group, **{side: renamed(getattr(group, side)) for side in ("incoming", "outgoing")})
    if room > 1:  # the same way in every trial
        assert trial.refute(group, [group], 0) is None
    else:
        with pytest.raises(Unfollowable, match="decides how the model goes on"):
            trial.refute(group, [group], 0)


def renamed(slots):
    return tuple(replace(slot, tensor=slot.tensor.replace("0.", "p.")) for slot in slots)


def test_the_model_and_torch_are_left_alone():
    model, example = zoo("gpt")
    model.train()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    state = torch.get_rng_state()
    rk.trace(model, example).verify(model, example)
    assert model.training and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
