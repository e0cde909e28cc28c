"""What recurrent layers are given, give and hold inside, against loops over time written by hand."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import rekindle as rk
from rekindle.observe.activations import Watch
from rekindle.observe.read_points import find_read_points
from rekindle.observe.sides import attach, first_tensor
from rekindle.testing import ZOO
from rekindle.testing.aged import graph_of, hooks

X = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))  # batch, time, features


def step(kind, module, suffix, x, h, c):
    """One step of time by the formulas in torch's documentation."""
    w_ih, w_hh, b_ih, b_hh = (getattr(module, f"{n}{suffix}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    a, b = x @ w_ih.T + b_ih, h @ w_hh.T + b_hh
    if kind == "lstm":
        i, f, g, o = (a + b).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    if kind == "gru":
        (ra, za, na), (rb, zb, nb) = a.chunk(3, -1), b.chunk(3, -1)
        z = (za + zb).sigmoid()
        return (1 - z) * (na + (ra + rb).sigmoid() * nb).tanh() + z * h, c
    return (a + b).relu(), c


def by_hand(kind, module, x):
    """Every layer's states [batch, time, directions * hidden]."""
    layers = []
    for layer in range(module.num_layers):
        both = []
        for suffix in ("", "_reverse")[: 1 + module.bidirectional]:
            h = c = torch.zeros(len(x), module.hidden_size)
            states = []
            for t in range(x.shape[1]) if not suffix else reversed(range(x.shape[1])):
                h, c = step(kind, module, f"_l{layer}{suffix}", x[:, t], h, c)
                states.append(h)
            both.append(torch.stack(states if not suffix else states[::-1], 1))
        x = torch.cat(both, -1)
        layers.append(x)
    return layers


KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "relu": lambda *a, **k: nn.RNN(*a, **k, nonlinearity="relu")}


@pytest.mark.parametrize("both", [False, True], ids=["forward", "bidirectional"])
@pytest.mark.parametrize("kind", KINDS)
def test_states_inside(kind, both):
    torch.manual_seed(0)
    module = KINDS[kind](4, 6, num_layers=3, batch_first=True, bidirectional=both, dropout=0.5)
    seen = {}

    def keep(side):
        return attach(module, side, lambda _, take: seen.update({side: take()}))

    handles = [keep(side) for side in ("input", "layer 0", "layer 1", "output")]
    state = torch.get_rng_state()
    module.train()(X)
    for handle in handles:
        handle.remove()
    first, second, _ = by_hand(kind, module, X)
    assert seen["input"] is X and not any(hooks(module))
    torch.testing.assert_close(seen["layer 0"], first, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(seen["layer 1"], second, rtol=1e-5, atol=1e-6)  # as if without dropout
    torch.set_rng_state(state)
    assert torch.equal(module(X)[0], seen["output"])  # looking drew nothing
    assert not seen["layer 0"].requires_grad


def test_first_states_are_used():
    module = nn.LSTM(4, 6, num_layers=2, batch_first=True)
    states = (torch.randn(2, 3, 6), torch.randn(2, 3, 6))
    seen = []
    handle = attach(module, "layer 0", lambda _, take: seen.append(take()))
    module(X, states)
    handle.remove()
    alone = nn.LSTM(4, 6, batch_first=True)
    alone.load_state_dict({name: p for name, p in module.state_dict().items() if "l0" in name})
    torch.testing.assert_close(seen[0], alone(X, (states[0][:1], states[1][:1]))[0])


def test_a_packed_sequence_is_seen_without_its_padding():
    module, seen = nn.GRU(4, 6, num_layers=2, batch_first=True), []
    for side in ("input", "layer 0", "output"):
        attach(module, side, lambda _, take: seen.append(take()))
    packed = pack_padded_sequence(X, torch.tensor([5, 3, 2]), batch_first=True)
    output, _ = module(packed)
    assert [tuple(x.shape) for x in seen] == [(10, 4), (10, 6), (10, 6)]
    assert torch.equal(seen[2], output.data)
    assert pad_packed_sequence(output, batch_first=True)[0].shape == (3, 5, 6)


def test_the_state_of_a_cell():
    cell, seen = nn.LSTMCell(4, 6), []
    attach(cell, "state", lambda _, take: seen.append(take()))
    h = torch.randn(3, 6)
    cell(X[:, 0], (h, torch.zeros(3, 6)))
    cell(X[:, 0])
    assert seen[0] is h and seen[1] is None


def test_what_has_no_tensor():
    assert first_tensor(None) is None and first_tensor(()) is None and first_tensor([[X]]) is X


# Where units are seen -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lstm_classifier", "gru_cells", "relu_rnn"])
def test_all_groups_of_the_zoo_are_seen_at_all_readers(name):
    member, graph = ZOO[name], graph_of(ZOO[name])
    groups = [group for group in graph.groups if group.outgoing]
    points, unseen = find_read_points(member.build(), groups, member.example())
    assert not unseen
    for group in groups:
        read = sorted(tensor for point in points if point.group == group.name for tensor in point.tensors)
        assert read == sorted(slot.tensor for slot in group.outgoing)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def test_magnitudes_of_each_layer_and_direction():
    torch.manual_seed(0)
    net = TwoLayers()
    graph = rk.trace(net, X)
    watch = Watch(net, graph.groups[:4], ["magnitude", "fired"], X)
    net(X)
    found, fired = watch.seen("magnitude"), watch.seen("fired")
    inner, outer = (states.detach() for states in by_hand("lstm", net.rnn, X))
    last = outer[:, -1]  # what the head is given
    parts = {"": slice(0, 6), "_reverse": slice(6, 12)}
    for suffix, part in parts.items():
        below, above = found[f"rnn.weight_ih_l0{suffix}"], found[f"rnn.weight_ih_l1{suffix}"]
        torch.testing.assert_close(below, inner[..., part].abs().mean((0, 1)), rtol=1e-5, atol=1e-6)
        both = (outer[..., part].abs().mean((0, 1)) + last[:, part].abs().mean(0)) / 2
        torch.testing.assert_close(above, both, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(fired[f"rnn.weight_ih_l1{suffix}"], outer[..., part].abs().amax((0, 1)))


def test_watching_hooks_at_the_output_stay_out_of_copies():
    net = TwoLayers()
    watch = Watch(net, rk.trace(net, X).groups[:4], ["magnitude"], X)
    assert any(hooks(net)) and not any(hooks(copy.deepcopy(net)))
    watch.close()
    assert not any(hooks(net)) and "__getstate__" not in net.rnn.__dict__


class Projected(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, proj_size=3, batch_first=True)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


def test_units_before_a_projection_are_named():
    net = Projected()
    points, unseen = find_read_points(net, rk.trace(net, X).groups[:2], X)
    assert set(unseen) == {"rnn.weight_ih_l0"}
    assert {point.group for point in points} == {"rnn.weight_hr_l0"}


def test_a_layer_with_a_forward_pass_of_its_own_is_not_guessed():
    class Doubled(nn.LSTM):
        def forward(self, x, hx=None):
            return super().forward(2 * x, hx)

    net = TwoLayers()
    net.rnn = Doubled(4, 6, num_layers=2, batch_first=True, bidirectional=True)
    _, unseen = find_read_points(net, rk.trace(net, X).groups[:4], X)
    assert len(unseen) == 4
