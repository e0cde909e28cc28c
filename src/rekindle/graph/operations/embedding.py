"""Tables that are looked up, and weights given by direction and gain (weight_norm)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from rekindle.graph.operations.table import Call, define
from rekindle.graph.regions import MatrixView
from rekindle.graph.rules import side_labels
from rekindle.graph.scaling.walk import Walk
from rekindle.graph.trace_log import WeightUse
from rekindle.graph.value import Value, flat


def embedding(call: Call) -> Any:
    """Units of a lookup: each row of the table is a vector of new units."""
    table: Value = call.args[0]
    if table.base != (0, 1) or table.data:
        return call.trace_log.gap(call.values, call.location)
    labels = flat(side_labels(call.trace_log, table, [1]))
    call.trace_log.use(labels, "weight", call.location)
    call.trace_log.weights.append(
        WeightUse(
            tensor=str(table.param),
            computed=False,
            view=MatrixView(table.shape, (1,), (0,)),
            out_labels=labels,
            in_labels=flat(side_labels(call.trace_log, table, [0])),
            reads_units=False,
            embedding=True,
            location=call.location,
        )
    )
    return Value(tuple(call.shapes), (labels.expand(tuple(call.shapes)),), data=True)


def scaled_embedding(walk: Walk, call: Call) -> Tensor:
    """Scale of a lookup: every row of the table keeps its proportion to the others."""
    rows = walk.exponents.settle(walk.field(call.args[0]), [0])
    return rows.reshape(-1).expand(tuple(call.shapes))


def weight_norm(call: Call) -> Any:
    """Units of W = g v/|v|: the direction stands for the weight, the gain runs along its output axis."""
    direction, gain = call.args[0], call.args[1]
    dim = int(call.arg(2, "dim", 0))
    if not (direction.is_parameter and gain.is_parameter and direction.base is not None):
        return call.trace_log.gap(call.values, call.location)
    call.trace_log.gains[str(direction.param)] = (str(gain.param), dim)
    if dim >= 0 and gain.base is not None:
        labels = call.trace_log.axis(str(gain.param), gain.shape, (dim,))
        call.trace_log.tie(labels, flat(side_labels(call.trace_log, direction, [dim])), "composed")
    call.trace_log.no_axis(gain, f"scales a weight along an axis without units at {call.location}")
    weight = replace(direction)  # a value of its own: the weight is scaled by the gain, the direction is not
    return [weight, Value(gain.shape)] if isinstance(call.shapes, list) else weight


def scaled_weight_norm(walk: Walk, call: Call) -> Any:
    """Scale of W = g v/|v|: the gain decides; along each direction everything keeps its proportion."""
    direction, gain = call.args[0], call.args[1]
    dim = int(call.arg(2, "dim", 0))
    walk.exponents.settle(walk.field(direction), [d for d in range(len(direction.shape)) if d != dim])
    result = walk.field(gain).expand(direction.shape)
    return [result, walk.field(gain)] if isinstance(call.shapes, list) else result


define("embedding", units=embedding, scale=scaled_embedding, picks=True)
define("_weight_norm _weight_norm_interface", units=weight_norm, scale=scaled_weight_norm)
