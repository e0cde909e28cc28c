"""Unit groups of recurrent networks: all gates of a unit are its own, and the next step of time reads it."""

from tests.graph.expected_notation import G, Place, rows, w, wb


def gates(units: int, count: int) -> list[list[int]]:
    """The rows of each unit: one in the block of every gate."""
    return [[gate * units + unit for gate in range(count)] for unit in range(units)]


def layer(
    path: str,
    inputs: int,
    units: int,
    count: int,
    read_by: set[str],
    suffix: str = "",
    bias: bool = True,
    kind: str = "stream",
    states: tuple[str, ...] = (),
) -> G:
    """A layer without projection; `suffix` is "_l0", "_l1_reverse", or nothing for a cell."""
    w_ih, w_hh = f"{path}.weight_ih{suffix}", f"{path}.weight_hh{suffix}"
    biases = {f"{path}.bias_{which}{suffix}" for which in ("ih", "hh")} if bias else set()
    return G(
        units,
        {w_ih, w_hh, *biases, *states},
        {w_hh, *read_by},
        kind=kind,
        at={
            ("incoming", w_ih): Place((count * units, inputs), (0,), gates(units, count)),
            ("incoming", w_hh): Place((count * units, units), (0,), gates(units, count)),
            **{("incoming", name): Place((count * units,), (0,), gates(units, count)) for name in biases},
            ("outgoing", w_hh): Place((count * units, units), (1,), rows(units)),
        },
    )


HEAD = G(3, wb("head"), kind="output")
LSTM_CLASSIFIER = [
    G(7, w("embedding"), {"lstm.weight_ih_l0"}),
    layer("lstm", 7, 11, 4, {"lstm.weight_ih_l1"}, "_l0"),
    layer("lstm", 11, 11, 4, w("head"), "_l1"),
    HEAD,
]
GRU_CELLS = [G(7, wb("stem"), {"cell.weight_ih"}), layer("cell", 7, 10, 3, w("head")), HEAD]
RELU_RNN = [layer("rnn", 5, 7, 1, w("head"), suffix) for suffix in ("_l0", "_l0_reverse")] + [HEAD]
