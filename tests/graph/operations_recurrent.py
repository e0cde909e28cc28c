"""Small recurrent networks, each with the unit groups that it must have, written by hand."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from tests.graph.expected_notation import G, Place, rows, w, wb
from tests.graph.expected_recurrent import gates, layer
from tests.graph.operation_cases import HEAD, L, case, data, weight

X = data(3, 5, 4)  # batch, time, features


def last(m: Any, x: Tensor) -> Tensor:
    return m.h(m.r(x)[0][:, -1])


def with_head(recurrent: Any, width: int) -> Any:
    return lambda: {"r": recurrent(), "h": L(width, 2)}


def cells(m: Any, x: Tensor) -> Tensor:
    state = (x.new_zeros(len(x), 6), x.new_zeros(len(x), 6))
    for step in x.unbind(1):
        state = m.r(step, state)
    return m.h(state[0])


def stacked_cells(m: Any, x: Tensor) -> Tensor:
    first = second = None
    for step in x.unbind(1):
        first = m.r(step, first)
        second = m.s(first, second)
    return m.h(second)


def gru_by_hand(m: Any, x: Tensor) -> Tensor:
    h = x.new_zeros(len(x), 6)
    for t in range(x.shape[1]):
        (ri, zi, ni), (rh, zh, nh) = m.i(x[:, t]).chunk(3, -1), m.s(h).chunk(3, -1)
        r, z = (ri + rh).sigmoid(), (zi + zh).sigmoid()
        h = (1 - z) * (ni + r * nh).tanh() + z * h
    return m.h(h)


def lstm_by_hand(m: Any, x: Tensor) -> Tensor:
    h = c = x.new_zeros(len(x), 6)
    for t in range(x.shape[1]):
        i, f, g, o = m.g(torch.cat([x[:, t], h], -1)).split(6, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return m.h(h)


def learned_states(m: Any, x: Tensor) -> Tensor:
    states = (m.h0.expand(-1, len(x), -1).contiguous(), m.c0.repeat(1, len(x), 1))
    return m.h(m.r(x, states)[0])


def given_states(m: Any, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
    return m.h(m.r(x, (h, c))[0])


def encoder_decoder(m: Any, x: Tensor) -> Tensor:
    return m.h(m.d(x, m.r(x)[1])[0])


def packed_inside(m: Any, x: Tensor, lengths: Tensor) -> Tensor:
    packed = pack_padded_sequence(m.e(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
    output, (h, _) = m.r(packed)
    return m.h(pad_packed_sequence(output, batch_first=True, total_length=7)[0].sum(1)) + m.k(h[-1])


def packed_example(m: Any, x: PackedSequence) -> Tensor:
    inner = PackedSequence(m.e(x.data).relu(), x.batch_sizes, x.sorted_indices, x.unsorted_indices)
    return m.h(m.r(inner)[0].data)


def hand(path: str, inputs: int, count: int) -> dict[tuple[str, str], Place]:
    return {("incoming", f"{path}.weight"): Place((6 * count, inputs), (0,), gates(6, count))}


def first_state(name: str, number: int) -> dict[tuple[str, str], Place]:
    return {("incoming", name): Place((2, 1, 6), (0, 2), rows(6, 6 * number))}


def joined(group: G, more: dict[tuple[str, str], Place]) -> G:
    names = {tensor for _, tensor in more}
    return G(group.units, group.incoming | names, group.outgoing, group.norms, group.kind, group.at | more)


BOTH = ("_l0", "_l0_reverse"), ("_l1", "_l1_reverse")
ABOVE = {f"r.weight_ih{suffix}" for suffix in BOTH[1]}


def projected(suffix: str, inputs: int, read_by: set[str]) -> list[G]:
    """Cell units, read by the projection; projected units, read by the next step of time and what follows."""
    w_ih, w_hh, w_hr = (f"r.weight_{kind}{suffix}" for kind in ("ih", "hh", "hr"))
    biases = {f"r.bias_{kind}{suffix}" for kind in ("ih", "hh")}
    return [
        G(
            6,
            {w_ih, w_hh} | biases,
            {w_hr},
            kind="stream",
            at={
                ("incoming", w_ih): Place((24, inputs), (0,), gates(6, 4)),
                ("incoming", w_hh): Place((24, 3), (0,), gates(6, 4)),
                ("outgoing", w_hr): Place((3, 6), (1,), rows(6)),
            },
        ),
        G(
            3,
            {w_hr},
            {w_hh} | read_by,
            at={
                ("incoming", w_hr): Place((3, 6), (0,), rows(3)),
                ("outgoing", w_hh): Place((24, 3), (1,), rows(3)),
            },
        ),
    ]


CASES = [
    case(
        "lstm", last, with_head(lambda: nn.LSTM(4, 6, batch_first=True), 6), X, layer("r", 4, 6, 4, w("h"), "_l0"), HEAD
    ),
    case(
        "lstm_bidirectional",
        lambda m, x: m.h(m.r(x)[0].mean(1)),
        with_head(lambda: nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True), 12),
        X,
        *(layer("r", 4, 6, 4, ABOVE, suffix) for suffix in BOTH[0]),
        *(layer("r", 12, 6, 4, w("h"), suffix) for suffix in BOTH[1]),
        HEAD,
    ),
    case(
        "lstm_projected",
        last,
        with_head(lambda: nn.LSTM(4, 6, 2, batch_first=True, proj_size=3), 3),
        X,
        *projected("_l0", 4, {"r.weight_ih_l1"}),
        *projected("_l1", 3, w("h")),
        HEAD,
    ),
    case(
        "gru_last_state_of_the_upper_layer",
        lambda m, x: m.h(m.r(x)[1][-1]),
        with_head(lambda: nn.GRU(4, 6, 2, bias=False), 6),
        X,
        layer("r", 4, 6, 3, {"r.weight_ih_l1"}, "_l0", bias=False),
        layer("r", 6, 6, 3, w("h"), "_l1", bias=False),
        HEAD,
    ),
    case(
        "gru_states_of_both_directions",
        lambda m, x: m.h(m.r(x)[1].transpose(0, 1).flatten(1)),
        with_head(lambda: nn.GRU(4, 6, bidirectional=True, batch_first=True), 12),
        X,
        *(layer("r", 4, 6, 3, w("h"), suffix) for suffix in BOTH[0]),
        HEAD,
    ),
    case(
        "cell_state_is_read",
        lambda m, x: m.h(m.r(x)[1][1][0]),
        with_head(lambda: nn.LSTM(4, 6), 6),
        X,
        layer("r", 4, 6, 4, w("h"), "_l0"),
        HEAD,
    ),
    case(
        "rnn_relu",
        last,
        with_head(lambda: nn.RNN(4, 6, nonlinearity="relu", batch_first=True), 6),
        X,
        layer("r", 4, 6, 1, w("h"), "_l0"),
        HEAD,
    ),
    case(
        "rnn_tanh_of_one_sequence_without_batch",
        lambda m, x: m.h(m.r(x)[0]),
        with_head(lambda: nn.RNN(4, 6, dropout=0.0), 6),
        X[0],
        layer("r", 4, 6, 1, w("h"), "_l0"),
        HEAD,
    ),
    case(
        "dropout_between_layers",
        last,
        with_head(lambda: nn.LSTM(4, 6, 2, batch_first=True, dropout=0.5), 6),
        X,
        layer("r", 4, 6, 4, {"r.weight_ih_l1"}, "_l0"),
        layer("r", 6, 6, 4, w("h"), "_l1"),
        HEAD,
    ),
    case("lstm_cells", cells, with_head(lambda: nn.LSTMCell(4, 6), 6), X, layer("r", 4, 6, 4, w("h")), HEAD),
    case(
        "stacked_gru_cells",
        stacked_cells,
        lambda: {"r": nn.GRUCell(4, 5), "s": nn.GRUCell(5, 6), "h": L(6, 2)},
        X,
        layer("r", 4, 5, 3, {"s.weight_ih"}),
        layer("s", 5, 6, 3, w("h")),
        HEAD,
    ),
    case(
        "relu_cells_without_bias",
        stacked_cells,
        lambda: {
            "r": nn.RNNCell(4, 5, bias=False, nonlinearity="relu"),
            "s": nn.RNNCell(5, 6, bias=False),
            "h": L(6, 2),
        },
        X,
        layer("r", 4, 5, 1, {"s.weight_ih"}, bias=False),
        layer("s", 5, 6, 1, w("h"), bias=False),
        HEAD,
    ),
    case(
        "gru_by_hand",
        gru_by_hand,
        lambda: {"i": L(4, 18), "s": L(6, 18), "h": L(6, 2)},
        X,
        G(6, wb("i", "s"), w("s", "h"), kind="stream", at=hand("i", 4, 3) | hand("s", 6, 3)),
        HEAD,
    ),
    case(
        "lstm_by_hand",
        lstm_by_hand,
        lambda: {"g": L(10, 24), "h": L(6, 2)},
        X,
        G(
            6,
            wb("g"),
            w("g", "h"),
            kind="stream",
            at=hand("g", 10, 4) | {("outgoing", "g.weight"): Place((24, 10), (1,), rows(6, 4))},
        ),
        HEAD,
    ),
    case(
        "learned_states",
        learned_states,
        lambda: {"r": nn.LSTM(4, 6, 2, batch_first=True), "h0": weight(2, 1, 6), "c0": weight(2, 1, 6), "h": L(6, 2)},
        X,
        joined(layer("r", 4, 6, 4, {"r.weight_ih_l1"}, "_l0"), first_state("h0", 0) | first_state("c0", 0)),
        joined(layer("r", 6, 6, 4, w("h"), "_l1"), first_state("h0", 1) | first_state("c0", 1)),
        HEAD,
    ),
    case(
        "given_states",
        given_states,
        with_head(lambda: nn.LSTM(4, 6, batch_first=True), 6),
        (X, data(1, 3, 6), data(1, 3, 6)),
        layer("r", 4, 6, 4, w("h"), "_l0"),
        HEAD,
        swap=False,  # the states would have to change places, too
    ),
    case(  # what the decoder begins with are the encoder's units: the decoder's are the same from there on
        "encoder_decoder",
        encoder_decoder,
        lambda: {"r": nn.GRU(4, 6, batch_first=True), "d": nn.GRU(4, 6, batch_first=True), "h": L(6, 2)},
        X,
        G(
            6,
            {f"{m}.{kind}_{which}_l0" for m in "rd" for kind in ("weight", "bias") for which in ("ih", "hh")},
            {"r.weight_hh_l0", "d.weight_hh_l0", "h.weight"},
            kind="stream",
            at={("incoming", "d.weight_ih_l0"): Place((18, 4), (0,), gates(6, 3))},
        ),
        HEAD,
    ),
    case(
        "packed_inside",
        packed_inside,
        lambda: {"e": L(4, 5), "r": nn.LSTM(5, 6, bidirectional=True, batch_first=True), "h": L(12, 2), "k": L(6, 2)},
        (X, torch.tensor([2, 5, 4])),
        G(5, wb("e"), {f"r.weight_ih{suffix}" for suffix in BOTH[0]}),
        layer("r", 5, 6, 4, w("h"), "_l0"),
        layer("r", 5, 6, 4, w("h", "k"), "_l0_reverse"),
        G(2, wb("h", "k"), kind="output"),
    ),
    case(
        "packed_example",
        packed_example,
        lambda: {"e": L(4, 5), "r": nn.GRU(5, 6), "h": L(6, 2)},
        pack_padded_sequence(X, [5, 3, 2], batch_first=True),
        G(5, wb("e"), {"r.weight_ih_l0"}),
        layer("r", 5, 6, 3, w("h"), "_l0"),
        HEAD,
    ),
    case(
        "a_single_unit",
        last,
        with_head(lambda: nn.LSTM(4, 1, batch_first=True, bidirectional=True), 2),
        X,
        *(layer("r", 4, 1, 4, w("h"), suffix) for suffix in BOTH[0]),
        HEAD,
    ),
    case(
        "a_single_step_of_time",
        last,
        with_head(lambda: nn.GRU(4, 6, batch_first=True), 6),
        X[:, :1],
        layer("r", 4, 6, 3, w("h"), "_l0"),
        HEAD,
    ),
]
