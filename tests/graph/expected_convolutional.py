"""Unit groups of convolutional networks, small and full size."""

from tests.graph.expected_notation import G, Place, bn, flattened, rows, w, wb

CNN_BN = [
    G(7, wb("conv1"), w("conv2"), bn("bn1")),
    G(
        11,
        w("conv2"),
        w("fc"),
        bn("bn2"),
        at={
            ("incoming", "conv2.weight"): Place((11, 63), (0,), rows(11)),
            ("norms", "bn2.running_var"): Place((11,), (0,), rows(11)),
            ("outgoing", "fc.weight"): Place((5, 44), (1,), flattened(11, 4)),
        },
    ),
    G(5, wb("fc"), kind="output"),
]


def vgg(stages: list[list[int]], hidden: list[int], classes: int, positions: int) -> list[G]:
    convolutions, layer = [], 0
    for stage in stages:
        for channels in stage:
            convolutions.append((f"features.{layer}", channels))
            layer += 2  # convolution, ReLU
        layer += 1  # pooling
    dense = [(f"classifier.{2 * i}", units) for i, units in enumerate([*hidden, classes])]
    layers = convolutions + dense
    groups = []
    for (name, units), (reader, outputs) in zip(layers[:-1], layers[1:], strict=True):
        at = {}
        if reader == "classifier.0":
            at[("outgoing", "classifier.0.weight")] = Place(
                (outputs, units * positions), (1,), flattened(units, positions)
            )
        groups.append(G(units, wb(name), w(reader), at=at))
    return [*groups, G(classes, wb(layers[-1][0]), kind="output")]


def resnet_basic(depths: list[int], widths: list[int], classes: int) -> list[G]:
    """Stem as wide as the first stage; every later stage starts with a projection."""
    groups = [G(classes, wb("head"), kind="output")]
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        blocks = [f"stages.{stage}.{i}" for i in range(depth)]
        for block in blocks:
            groups.append(G(width, w(f"{block}.conv1"), w(f"{block}.conv2"), bn(f"{block}.bn1")))
        writers = w(*(f"{block}.conv2" for block in blocks))
        norms = bn(*(f"{block}.bn2" for block in blocks))
        if stage == 0:
            writers, norms = writers | w("conv"), norms | bn("bn")
            readers = w(*(f"{block}.conv1" for block in blocks))
        else:
            writers, norms = writers | w(f"{blocks[0]}.shortcut.0"), norms | bn(f"{blocks[0]}.shortcut.1")
            readers = w(*(f"{block}.conv1" for block in blocks[1:]))
        after = f"stages.{stage + 1}.0"
        readers |= w("head") if stage == len(depths) - 1 else w(f"{after}.conv1", f"{after}.shortcut.0")
        groups.append(G(width, writers, readers, norms, kind="stream"))
    return groups


def resnet_bottleneck(depths: list[int], widths: list[int], stem: int, classes: int) -> list[G]:
    """Every stage starts with a projection, so the stem is no part of a stream."""
    groups = [
        G(stem, w("conv"), w("stages.0.0.conv1", "stages.0.0.shortcut.0"), bn("bn")),
        G(classes, wb("head"), kind="output"),
    ]
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        blocks = [f"stages.{stage}.{i}" for i in range(depth)]
        for block in blocks:
            groups.append(G(width, w(f"{block}.conv1"), w(f"{block}.conv2"), bn(f"{block}.bn1")))
            groups.append(G(width, w(f"{block}.conv2"), w(f"{block}.conv3"), bn(f"{block}.bn2")))
        writers = w(f"{blocks[0]}.shortcut.0", *(f"{block}.conv3" for block in blocks))
        norms = bn(f"{blocks[0]}.shortcut.1", *(f"{block}.bn3" for block in blocks))
        after = f"stages.{stage + 1}.0"
        readers = w("head") if stage == len(depths) - 1 else w(f"{after}.conv1", f"{after}.shortcut.0")
        readers |= w(*(f"{block}.conv1" for block in blocks[1:]))
        groups.append(G(4 * width, writers, readers, norms, kind="stream"))
    return groups


def mobilenet(stem: int, widths: list[int], classes: int) -> list[G]:
    """What a depthwise convolution reads and what it writes are groups of their own."""
    groups, (name, norm, channels) = [], ("conv", "bn", stem)
    for i, width in enumerate(widths):
        block = f"blocks.{i}"
        kernel = f"{block}.depthwise.weight"
        reads = {("outgoing", kernel): Place((channels, 1, 1, 3, 3), (0, 2), rows(channels))}
        writes = {("incoming", kernel): Place((channels, 1, 3, 3), (0,), rows(channels))}
        groups.append(G(channels, w(name), {kernel}, bn(norm), at=reads))
        groups.append(G(channels, {kernel}, w(f"{block}.pointwise"), bn(f"{block}.bn1"), at=writes))
        name, norm, channels = f"{block}.pointwise", f"{block}.bn2", width
    return [*groups, G(channels, w(name), w("head"), bn(norm)), G(classes, wb("head"), kind="output")]


# Channel 5g + c moves to 2c + g, so that each half of the next convolution's input comes from both halves.
SHUFFLED = [[2 * c + g] for g in range(2) for c in range(5)]
GROUPED_CONV = [
    G(
        6,
        wb("conv1"),
        w("conv2"),
        at={
            ("incoming", "conv1.weight"): Place((6, 27), (0,), rows(6)),
            ("outgoing", "conv2.weight"): Place((2, 5, 3, 3, 3), (0, 2), rows(6)),
        },
    ),
    G(
        10,
        wb("conv2"),
        w("conv3"),
        at={
            ("incoming", "conv2.weight"): Place((10, 27), (0,), rows(10)),
            ("outgoing", "conv3.weight"): Place((2, 7, 5, 3, 3), (0, 2), SHUFFLED),
        },
    ),
    G(14, wb("conv3"), w("head")),
    G(3, wb("head"), kind="output"),
]


def densenet_group(writers: set[str], units: int, first: int, norms: list[int], readers: list[str]) -> G:
    """`units` channels that start at `first` wherever they are concatenated."""
    sizes = {"bn1": 6, "bn2": 10, "bn3": 15}
    shapes = {"conv1": (4, 6, 9), "conv2": (5, 10, 9), "head": (3, 15)}
    names = [f"bn{i}" for i in norms]
    at = {("norms", f"{norm}.weight"): Place((sizes[norm],), (0,), rows(units, first)) for norm in names}
    at |= {("outgoing", f"{reader}.weight"): Place(shapes[reader], (1,), rows(units, first)) for reader in readers}
    return G(units, writers, w(*readers), bn(*names), at=at)


DENSENET = [
    densenet_group(wb("conv0"), 6, 0, [1, 2, 3], ["conv1", "conv2", "head"]),
    densenet_group(w("conv1"), 4, 6, [2, 3], ["conv2", "head"]),
    densenet_group(w("conv2"), 5, 10, [3], ["head"]),
    G(3, wb("head"), kind="output"),
]

CONV1D = [
    G(7, wb("conv1"), w("conv2")),
    G(11, wb("conv2"), w("head"), at={("outgoing", "head.weight"): Place((5, 33), (1,), flattened(11, 3))}),
    G(5, wb("head"), kind="output"),
]

CONV3D = [
    G(5, wb("conv1"), w("conv2")),
    G(7, wb("conv2"), w("head"), at={("outgoing", "head.weight"): Place((3, 56), (1,), flattened(7, 8))}),
    G(3, wb("head"), kind="output"),
]

# A transposed convolution's weight is (in, out / groups, height, width).
CONV_TRANSPOSE = [
    G(6, wb("encode1"), w("encode2")),
    G(
        8,
        wb("encode2"),
        w("decode1"),
        at={
            ("incoming", "encode2.weight"): Place((8, 54), (0,), rows(8)),
            ("outgoing", "decode1.weight"): Place((8, 80), (0,), rows(8)),
        },
    ),
    G(
        10,
        wb("decode1"),
        w("decode2"),
        at={
            ("incoming", "decode1.weight"): Place((2, 4, 5, 4, 4), (0, 2), rows(10)),
            ("outgoing", "decode2.weight"): Place((10, 48), (0,), rows(10)),
        },
    ),
    G(3, wb("decode2"), kind="output", at={("incoming", "decode2.weight"): Place((10, 3, 16), (1,), rows(3))}),
]

GROUP_NORM_CNN = [
    G(6, wb("conv1"), w("conv2"), wb("norm1")),
    G(10, wb("conv2"), w("head"), wb("norm2")),
    G(3, wb("head"), kind="output"),
]

SQUEEZE_EXCITE = [
    G(8, w("conv1") | wb("expand"), w("conv2", "reduce"), bn("bn1"), kind="gated"),
    G(5, wb("reduce"), w("expand")),
    G(11, wb("conv2"), w("head")),
    G(3, wb("head"), kind="output"),
]

# The value has one unit, spread over the four actions; it leaves the model beside theirs.
DUELING = [
    G(7, wb("conv1"), w("conv2")),
    G(
        9,
        wb("conv2"),
        w("value_hidden", "advantage_hidden"),
        at={
            ("outgoing", "value_hidden.weight"): Place((11, 36), (1,), flattened(9, 4)),
            ("outgoing", "advantage_hidden.weight"): Place((13, 36), (1,), flattened(9, 4)),
        },
    ),
    G(11, wb("value_hidden"), w("value")),
    G(13, wb("advantage_hidden"), w("advantage")),
    G(1, wb("value"), kind="output"),
    G(4, wb("advantage"), kind="output"),
]
