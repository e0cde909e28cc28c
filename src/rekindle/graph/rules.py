"""The two rules behind nearly every operation: what happens element by element, and what happens in a product.

Element by element, values at the same place belong to the same unit. In a product, the units along the contracted axis
of one side meet those of the other side (and are read there), and every other axis is carried over. A linear layer,
GPT-2's `Conv1D`, an einsum and the scores of attention are all the second rule; a bias, a residual sum, a gate and a
positional embedding are all the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rekindle.graph.regions import MatrixView
from rekindle.graph.trace_log import Axis, Location, TraceLog, WeightUse, merge_leaks, merge_opaque, merge_sources
from rekindle.graph.value import NONE, Product, Value, compact, distinct, partly, shrink, varying

Tag = Literal["add", "mul", "other"]
Letters = Sequence[str]


def expand_to(labels: Tensor, shape: Sequence[int]) -> Tensor:
    """Broadcast labels to a shape of at least as many dimensions, aligned at the right."""
    return labels.expand(tuple(shape)) if labels.ndim == len(shape) else compact(labels).expand(tuple(shape))


def elementwise(
    trace_log: TraceLog, operands: Sequence[Value], shape: Sequence[int], tag: Tag, location: Location
) -> Value:
    """Join values element by element."""
    with_data = any(value.data for value in operands)
    activations = [value for value in operands if value.data or not with_data]
    parameters = [value for value in operands if with_data and not value.data]
    fields, leaks = _join(trace_log, activations, tuple(shape), tag if with_data else "composed")
    leaks = distinct(leaks, merge_leaks(*parameters)) if parameters else leaks
    if tag == "mul" and parameters and not any(value.relevant for value in activations):
        fields = _written(trace_log, parameters[0], activations, tuple(shape), location)
        parameters = parameters[1:] if fields else parameters
    for value in parameters:
        _place(trace_log, value, fields, tuple(shape), tag, location, neutral=_neutral(tag, fields, leaks))
    product = [value.product for value in activations if value.product is not None]
    return Value(
        shape=tuple(shape),
        unit_labels=tuple(fields),
        data=with_data,
        along=operands[0].along if len(operands) == 1 and len(operands[0].shape) == len(shape) else None,
        leaks=leaks,
        opaque=merge_opaque(*operands),
        product=product[0] if len(product) == 1 else None,
        sources=merge_sources(*operands),
    )


def _join(
    trace_log: TraceLog, values: Sequence[Value], shape: tuple[int, ...], tag: str
) -> tuple[list[Tensor], Tensor]:
    """Tie the fields of several values; a single unit spread over many others leaks into them instead."""
    joined: list[Tensor] = []
    leaks = [value.leaks for value in values]
    single: list[tuple[Tensor, bool]] = []
    for value in values:
        for labels in value.unit_labels:
            wide = expand_to(labels, shape)
            if not varying(labels):
                single.append((wide, value.shape != shape))
            else:
                _merge(trace_log, joined, wide, tag, leaks)
    for wide, spread in single:
        if spread and any(varying(other) for other in joined):
            leaks.append(distinct(wide))
        elif not spread and any(not varying(other) for other in joined):
            trace_log.tie(wide, next(other for other in joined if not varying(other)), tag)
        elif not any(torch.equal(compact(wide), compact(other)) for other in joined):
            joined.append(wide)
    return joined, distinct(*leaks)


def _written(
    trace_log: TraceLog, value: Value, inputs: Sequence[Value], shape: tuple[int, ...], location: Location
) -> list[Tensor]:
    """Return the units that a parameter writes which multiplies the raw input: along the dimensions the input lacks.

    Numbers that are turned into tokens, x[b, f, 1] w[f, d], are a layer of one input for each f.
    """
    shift = len(shape) - len(value.shape)
    has = {d - len(x.shape) + len(shape) for x in inputs for d, size in enumerate(x.shape) if size > 1}
    lacking = [d for d, size in enumerate(value.shape) if size > 1 and d + shift not in has]
    if value.base is not None and value.is_parameter:
        fields = [side_labels(trace_log, value, lacking)] if lacking else []
    else:
        fields = [f for n, f in enumerate(value.unit_labels) if value.dims(n) and value.dims(n) <= set(lacking)]
    for labels in fields:
        trace_log.use(labels, "weight", location)
    return [expand_to(labels, shape) for labels in fields]


def _merge(trace_log: TraceLog, joined: list[Tensor], labels: Tensor, tag: str, leaks: list[Tensor]) -> None:
    """Join one more field: tied to a field along the same dimensions, leaking where it is one value for many units."""
    mine = varying(labels)
    for n, other in enumerate(joined):
        theirs = varying(other)
        if not mine & theirs:
            continue
        if tag != "composed" and mine < theirs and not runs_along(trace_log, mine, other):
            leaks.append(distinct(labels))
        elif tag != "composed" and theirs < mine and not runs_along(trace_log, theirs, labels):
            leaks.append(distinct(other))
            joined[n] = labels
        else:
            trace_log.tie(labels, other, tag)
            if bool((compact(other) == NONE).any()):
                joined[n] = torch.where(other == NONE, labels, other)
        return
    joined.append(labels)


def _neutral(tag: Tag, fields: Sequence[Tensor], leaks: Tensor) -> float | None:
    """A factor right after a normalization is neutral at one; of other factors nothing is known."""
    if tag != "mul" or not fields:
        return None
    return 1.0 if bool(torch.isin(distinct(*fields), leaks).any()) else None


def _place(
    trace_log: TraceLog,
    value: Value,
    fields: Sequence[Tensor],
    shape: tuple[int, ...],
    tag: Tag,
    location: Location,
    neutral: float | None,
) -> None:
    """Give a parameter that meets an activation element by element its slots."""
    for other in fields:
        for labels in _candidates(trace_log, value, other, len(shape)):
            wide = expand_to(labels, shape)
            single = math.prod(value.shape) == 1 and not varying(other)
            if single or runs_along(trace_log, varying(wide), other):
                trace_log.tie(wide, other, "param")
                trace_log.use(labels, "scale" if tag == "mul" else "bias", location, neutral)
    trace_log.no_axis(value, f"meets values without a unit axis of its own at {location}")


def runs_along(trace_log: TraceLog, dims: frozenset[int], units: Tensor) -> bool:
    """Tell whether a parameter that varies along `dims` has a value for each unit.

    Units may vary along more dimensions where they come from different tensors that share it (states, actions and
    returns stacked before one LayerNorm); units of one tensor that share it (the heads of a query) each have only a
    part in it, and none owns it.
    """
    if not dims or not dims <= varying(units):
        return False
    room = math.prod(units.shape[d] for d in dims)
    if dims == varying(units):
        return True
    return all(count <= room for _, count in trace_log.axes_of(distinct(units)))


def _candidates(trace_log: TraceLog, value: Value, other: Tensor, ndim: int) -> Sequence[Tensor]:
    """Return the labels of a parameter that may run along a field: all its dimensions along it, taken together."""
    if value.base is None or not value.is_parameter:
        return value.unit_labels
    shift = ndim - len(value.shape)
    dims = [d for d, size in enumerate(value.shape) if size > 1 and d + shift in varying(other)]
    return [side_labels(trace_log, value, dims)] if dims else value.unit_labels[:1]


def contract(
    trace_log: TraceLog,
    a: Value,
    la: Letters,
    b: Value,
    lb: Letters,
    lo: Letters,
    shape: Sequence[int],
    location: Location,
) -> Value:
    """Multiply two values over the letters that the result lacks, as in einsum.

    Args:
        trace_log: Where ties, uses and reads are written down.
        a: Left value.
        la: A letter for each dimension of `a`.
        b: Right value.
        lb: A letter for each dimension of `b`.
        lo: A letter for each dimension of the result.
        shape: Shape of the result.
        location: Where this happens.
    """
    sizes = dict(zip(la, a.shape, strict=True)) | dict(zip(lb, b.shape, strict=True))
    summed = {letter for letter in sizes if letter not in lo}
    a = _weight_labels(trace_log, a, la, lb, lo, len(_split(b, lb, summed, sizes)[0]))
    b = _weight_labels(trace_log, b, lb, la, lo, len(_split(a, la, summed, sizes)[0]))
    a_read, a_kept = _split(a, la, summed, sizes, by_weight=not b.data)
    b_read, b_kept = _split(b, lb, summed, sizes, by_weight=not a.data)
    met = _meet(trace_log, a_read, la, b_read, lb, "product" if a.data and b.data else "read")
    product = None
    carried = (a_kept if a.data else []) + (b_kept if b.data else [])
    consumed = (a_read if a.data else []) + (b_read if b.data else [])
    leaks = [merge_leaks(a, b)] if carried or not consumed or partly(consumed) else []
    leaks += [value.leaks for value in (a, b) if not value.data]  # a weight that was picked by units
    if leaks and not (a.data and b.data):
        trace_log.passed.append(distinct(*leaks))
    if a.data and b.data and met:
        product = _product(trace_log, a_read, la, b_read, lb, summed)
        trace_log.read(a, a_read)
        trace_log.read(b, b_read)
    elif a.data and b.data:
        leaks = [merge_leaks(a, b), *map(distinct, consumed)]
    else:
        _weight_uses(trace_log, a, a_read, a_kept, b, b_read, "read", location)
        _weight_uses(trace_log, b, b_read, b_kept, a, a_read, "weight", location)
    kept = [_relay(labels, la, lo, shape) for labels in a_kept]
    for labels in b_kept:
        _merge(trace_log, kept, _relay(labels, lb, lo, shape), "mul", leaks)
    return Value(
        shape=tuple(shape),
        unit_labels=tuple(kept),
        data=a.data or b.data,
        leaks=distinct(*leaks),
        opaque=merge_opaque(a, b) if carried or (a.data and b.data) else frozenset(),
        product=product,
        sources=merge_sources(a, b),
    )


def _weight_labels(trace_log: TraceLog, value: Value, own: Letters, other: Letters, out: Letters, copies: int) -> Value:
    """Give a whole parameter joint fields for its input side (one for each kind of units) and its output side.

    A letter that both sides and the result share (members of an ensemble, experts) belongs to either side.
    """
    if value.base is None or not value.is_parameter or value.data:
        return value
    shared = [d for d, c in enumerate(own) if c in other and c in out and value.shape[d] > 1]
    ins = [d for d, c in enumerate(own) if c in other and c not in out]
    outs = [d for d, c in enumerate(own) if c in out and c not in other]
    fields, along = [], []
    for copy in range(max(copies, 1)) if ins else ():
        fields.append(side_labels(trace_log, value, sorted(ins + shared), copy))
        along.append(ins[0])
    if outs:
        fields.append(side_labels(trace_log, value, sorted(outs + shared)))
        along.append(outs[0])
    return replace(value, unit_labels=tuple(fields), base=None, along=tuple(along))


def side_labels(trace_log: TraceLog, value: Value, dims: Sequence[int], copy: int = 0) -> Tensor:
    """Return the labels of some dimensions of a whole parameter taken together, broadcast to its shape."""
    base = value.base or tuple(range(len(value.shape)))
    stored = [value.shape[base.index(d)] for d in range(len(base))]
    ordered = sorted(dims, key=lambda d: base[d])
    labels = trace_log.axis(str(value.param), stored, [base[d] for d in ordered], copy)
    labels = labels.reshape([value.shape[d] for d in ordered])
    labels = labels.permute([ordered.index(d) for d in sorted(dims)])
    return labels.reshape([size if d in dims else 1 for d, size in enumerate(value.shape)]).expand(value.shape)


def _split(
    value: Value, letters: Letters, summed: set[str], sizes: dict[str, int], by_weight: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """Part the fields into those along a summed letter and those that are carried over.

    A single unit has no dimension of its own: a weight that reads no other units reads it.
    """
    read: list[Tensor] = []
    kept: list[Tensor] = []
    single: list[Tensor] = []
    trivial = all(sizes[letter] == 1 for letter in summed)
    for position, labels in enumerate(value.unit_labels):
        along = {letters[d] for d in value.dims(position)}
        (read if along & summed else kept if along else single).append(labels)
    goes_to = read if trivial or (by_weight and value.data and not read) else kept
    return read + single if goes_to is read else read, kept + single if goes_to is kept else kept


def _meet(trace_log: TraceLog, a_read: list[Tensor], la: Letters, b_read: list[Tensor], lb: Letters, tag: str) -> bool:
    """Tie the units along summed letters; where a weight has a copy of its axis for each kind of units, one by one."""
    common = list(dict.fromkeys([*la, *lb]))
    pairs = [(left, right) for left in a_read for right in b_read]
    if len(a_read) == len(b_read) > 1:
        pairs = list(zip(a_read, b_read, strict=True))
    for left, right in pairs:
        trace_log.tie(_spread(left, la, common), _spread(right, lb, common), tag)
    return bool(a_read and b_read)


def _spread(labels: Tensor, own: Letters, common: Letters) -> Tensor:
    """Bring labels into the order of common letters, with size one where a letter is not theirs."""
    core = compact(shrink(labels)).permute([list(own).index(letter) for letter in common if letter in own])
    for position, letter in enumerate(common):
        if letter not in own:
            core = core.unsqueeze(position)
    return core


def _relay(labels: Tensor, own: Letters, out: Letters, shape: Sequence[int]) -> Tensor:
    core = compact(shrink(labels))
    for d in reversed(range(core.ndim)):
        if own[d] not in out:
            core = core.select(d, 0)
    return _spread(core, [letter for letter in own if letter in out], out).expand(tuple(shape))


def _product(
    trace_log: TraceLog, a_read: list[Tensor], la: Letters, b_read: list[Tensor], lb: Letters, summed: set[str]
) -> Product:
    left = tuple(by_head(labels, [letter in summed for letter in la]) for labels in a_read)
    right = tuple(by_head(labels, [letter in summed for letter in lb]) for labels in b_read)
    trace_log.products.append((distinct(*left), distinct(*right)))
    return Product(left, right)


def by_head(labels: Tensor, within: Sequence[bool]) -> Tensor:
    """Return labels as [heads, units]: `within` marks the dimensions inside a head."""
    core = compact(shrink(labels))
    inside = [d for d in range(core.ndim) if within[d]]
    outside = [d for d in range(core.ndim) if not within[d]]
    units = math.prod(core.shape[d] for d in inside)
    return core.permute(outside + inside).reshape(-1, units)


def _weight_uses(
    trace_log: TraceLog,
    value: Value,
    read: list[Tensor],
    kept: list[Tensor],
    other: Value,
    consumed: list[Tensor],
    among_parameters: Literal["read", "weight"],
    location: Location,
) -> None:
    """Write down how a parameter was used in a product, and that it read the units of the other side."""
    if value.data:
        return
    for labels in read if consumed or (other.unit_labels and not other.data) else ():  # the raw input has no units
        trace_log.use(labels, "read" if other.data else among_parameters, location)
    if other.data:
        for labels in kept:
            trace_log.use(labels, "weight", location)
        trace_log.read(other, consumed)


def record_weight(
    trace_log: TraceLog, value: Value, out_dims: Sequence[int], in_dims: Sequence[int], x: Value, location: Location
) -> None:
    """Write down a weight that maps the activation `x` to new units."""
    whole = value.base is not None and value.is_parameter
    out = side_labels(trace_log, value, out_dims) if whole else value.labels_over(out_dims[0])
    in_ = side_labels(trace_log, value, in_dims) if whole else value.labels_over(in_dims[0])
    if out is None or in_ is None:
        return
    out_labels, in_labels = compact(shrink(out)).reshape(-1), compact(shrink(in_)).reshape(-1)
    out_axis, in_axis = (trace_log.axis_of(int(labels[0])) for labels in (out_labels, in_labels))
    view = matrix_view(out_axis, in_axis, out_labels, in_labels)
    if view is None:
        return
    trace_log.weights.append(
        WeightUse(
            tensor=out_axis.tensor,
            computed=value.param is None,
            view=view,
            out_labels=out_labels,
            in_labels=in_labels,
            reads_units=x.relevant,
            embedding=False,
            location=location,
            gain=trace_log.gains.get(out_axis.tensor),
        )
    )


def matrix_view(out: Axis, in_: Axis, out_labels: Tensor, in_labels: Tensor) -> MatrixView | None:
    """Return the matrix view of a tensor whose output and input axes are known, or None across tensors."""
    if out.tensor != in_.tensor or out.view != in_.view:
        return None
    batch = tuple(d for d in range(len(out.view)) if d not in out.dims + in_.dims)
    return MatrixView(out.view, out.dims, in_.dims, batch, _chosen(out, out_labels), _chosen(in_, in_labels))


def _chosen(axis: Axis, labels: Tensor) -> Tensor | None:
    positions = labels - axis.start
    return None if torch.equal(positions, torch.arange(axis.size)) else positions
