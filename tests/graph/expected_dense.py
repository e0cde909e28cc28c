"""Unit groups of the dense zoo models."""

from tests.graph.expected_notation import G, Place, flattened, rows, w, wb


def mlp(bias: bool) -> list[G]:
    both = wb if bias else w
    return [
        G(7, both("layers.0"), w("layers.1")),
        G(11, both("layers.1"), w("layers.2")),
        G(3, both("layers.2"), kind="output"),
    ]


MLP_FUNCTIONAL = [G(7, {"w1", "b1"}, {"w2"}), G(11, {"w2", "b2"}, {"w3"}), G(3, {"w3"}, kind="output")]

LAYER_NORM_MLP = [
    G(7, wb("fc1"), w("fc2"), wb("norm1")),
    G(11, wb("fc2"), w("head"), wb("norm2")),
    G(3, wb("head"), kind="output"),
]

RMS_NORM_MLP = [
    G(10, wb("embed", "down.0", "down.1"), w("up.0", "up.1", "head"), w("norms.0", "norms.1", "norm"), kind="stream"),
    G(7, wb("up.0"), w("down.0")),
    G(13, wb("up.1"), w("down.1")),
    G(3, wb("head"), kind="output"),
]

# Column j of `shared` is read by unit j of the stem and by unit j of the first application, so they are one unit; row i
# is written by both applications, so those are one as well. No addition joins them: not a stream.
SHARED_MODULE = [
    G(7, wb("stem", "shared"), w("shared", "head")),
    G(3, wb("head"), kind="output"),
]

# The decoder reads unit u through row u of the encoder's weight, which also writes it; its outputs are the columns.
TIED_AUTOENCODER = [
    G(
        5,
        wb("encoder"),
        w("encoder"),
        at={
            ("incoming", "encoder.weight"): Place((5, 9), (0,), rows(5)),
            ("outgoing", "encoder.weight"): Place((5, 9), (0,), rows(5)),
        },
    ),
    G(
        9,
        {"encoder.weight", "decoder_bias"},
        kind="output",
        at={("incoming", "encoder.weight"): Place((5, 9), (1,), rows(9))},
    ),
]

# Length (original0) and direction (original1) both write the unit; only the direction has columns that read.
LENGTH, DIRECTION = "parametrizations.weight.original0", "parametrizations.weight.original1"
WEIGHT_NORM_MLP = [
    G(
        7,
        {f"conv.{LENGTH}", f"conv.{DIRECTION}", "conv.bias"},
        {f"fc.{DIRECTION}"},
        at={
            ("incoming", f"conv.{LENGTH}"): Place((7, 1), (0,), rows(7)),
            ("incoming", f"conv.{DIRECTION}"): Place((7, 27), (0,), rows(7)),
            ("outgoing", f"fc.{DIRECTION}"): Place((11, 28), (1,), flattened(7, 4)),
        },
    ),
    G(11, {f"fc.{LENGTH}", f"fc.{DIRECTION}", "fc.bias"}, w("head")),
    G(3, wb("head"), kind="output"),
]
