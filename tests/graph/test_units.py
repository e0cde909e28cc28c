"""Families of units, found with arrays, against one unit after another with plain dicts."""

import numpy as np
import pytest
import torch

from rekindle.graph.trace_log import Location, TraceLog
from rekindle.graph.units import ADD, MUL, OPAQUE, OUTPUT, PASSED, PRODUCT, SEEPS, families_of, flags_of

HERE = Location("here", "aten.op")
KINDS = ("weight", "bias", "scale", "read")


def slow_families(log, root, flags, is_key):
    """Return for each family its roots, and the labels of each of its units at each port: the obvious way."""
    ports, units = {}, {}
    for use in log.uses:
        for label in use.labels.tolist():
            axis = log.axes.index(log.axis_of(label))
            port = ports.setdefault((axis, use.kind), len(ports))
            units.setdefault(int(root[label]), {}).setdefault(port, set()).add(label)
    families = {}
    for unit in sorted(units):
        signature = tuple(
            (port, len(labels), sum(bool(is_key[x]) for x in labels)) for port, labels in sorted(units[unit].items())
        )
        families.setdefault((signature, int(flags[unit])), []).append(unit)
    kinds = [kind for _, kind in ports]
    found = []
    for (signature, flag), members in families.items():
        writers = [port for port, _, _ in signature if kinds[port] in ("weight", "bias")]
        if writers and not flag & OPAQUE:
            labels = [[sorted(units[unit][port]) for unit in members] for port, _, _ in signature]
            found.append((writers[0], members, [port for port, _, _ in signature], labels))
    return [each[1:] for each in sorted(found, key=lambda each: (each[0], each[1][0]))]


def random_log(seed):
    draw = np.random.default_rng(seed)
    log = TraceLog()
    axes = [log.axis(f"t{n}", (int(size),), (0,)) for n, size in enumerate(draw.integers(1, 9, size=12))]
    for _ in range(14):
        a, b = (axes[n] for n in draw.integers(0, len(axes), size=2))
        size = min(len(a), len(b))
        log.tie(a[:size], b[:size], str(draw.choice(["read", "add", "mul", "composed" if seed % 2 else "read"])))
    for _ in range(20):
        axis = axes[draw.integers(0, len(axes))]
        some = torch.from_numpy(np.flatnonzero(draw.random(len(axis)) < 0.8))
        log.use(axis[some], str(draw.choice(KINDS)), HERE)
    for found in (log.outputs, log.seeps, log.passed):
        found.append(axes[draw.integers(0, len(axes))])
    return log, draw


@pytest.mark.parametrize("seed", [*range(0, 40, 2)])  # without composed weights, whose closure is a rule of its own
def test_as_one_by_one(seed):
    log, draw = random_log(seed)
    root = log.components()
    flags = flags_of(log, root)
    is_key = draw.random(log.total) < 0.3
    _, families = families_of(log, root, flags, is_key)
    fast = [(f.roots.tolist(), list(f.ports), [labels.tolist() for labels in f.labels]) for f in families]
    assert fast == [tuple(each) for each in slow_families(log, root, flags, is_key)] and fast


@pytest.mark.parametrize("seed", [*range(1, 20, 2)])
def test_what_is_composed_comes_along(seed):
    log, _ = random_log(seed)
    root = log.components()
    ports, families = families_of(log, root, flags_of(log, root), np.zeros(log.total, dtype=bool))
    for family in families:
        for number, labels in zip(family.ports, family.labels, strict=True):
            assert (root[labels] == family.roots[:, None]).all()
            axis = log.axes[ports[number].axis]
            assert ((labels >= axis.start) & (labels < axis.start + axis.size)).all()


def test_flags():
    log = TraceLog()
    a, b, c, d = (log.axis(name, (2,), (0,)) for name in "abcd")
    log.tie(a, b, "add")
    log.tie(c, d, "mul")
    log.products.append((a, c))
    log.outputs.append(b)
    log.seeps.append(d)
    root = log.components()
    assert flags_of(log, root)[[0, 4]].tolist() == [ADD | PRODUCT | OUTPUT, MUL | PRODUCT | SEEPS | OUTPUT]
    log.passed.append(c)  # it went on through a weight: what seeps out is not the unit itself
    assert flags_of(log, root)[4] == MUL | PRODUCT | SEEPS | PASSED
    log.opaque_labels.append((a, "why"))
    assert flags_of(log, root)[0] & OPAQUE


def test_nothing():
    log = TraceLog()
    assert families_of(log, log.components(), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)) == ([], [])
