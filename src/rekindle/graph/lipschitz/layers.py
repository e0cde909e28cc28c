"""Layers with tensors of their own: linear layers, convolutions, BatchNorm."""

from __future__ import annotations

from typing import Any

from rekindle.graph.lipschitz.own import Own, bounds, operands_of
from rekindle.graph.operations.table import Call
from rekindle.graph.value import Value


@bounds("batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")
def batch_norm(call: Call) -> Own | None:
    """By running statistics it is a factor a channel; by those of the batch it has no bound that is of use."""
    weight, mean, var = call.args[1], call.args[3], call.args[4]
    no_flag = call.op == "_native_batch_norm_legit_no_training"
    training, epsilon = (False, call.args[6]) if no_flag else (call.args[5], call.args[7])
    known = all(isinstance(value, Value) and value.param is not None for value in (mean, var))
    if training or not known or len(operands_of(call)) != 1 or (weight is not None and not weight.is_parameter):
        return None
    names = (str(var.param), *(() if weight is None else (str(weight.param),)))
    return Own((1.0,), stored="batch_norm", tensors=names, epsilon=float(epsilon))


@bounds("conv1d", "conv2d", "conv3d", "convolution", "_convolution")
@bounds("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
@bounds("linear")
def layer(call: Call) -> Own | None:
    """A layer with the whole of a parameter as its weight; `kernels.spectra.convolution_bound` says why."""
    return _weight(call, call.args[0], call.args[1])


@bounds("addmm", "addmv")
def added_product(call: Call) -> Own | None:
    """A bias and a product."""
    return _by_matrix(call, call.args[1], call.args[2])


@bounds("matmul", "mm", "mv")
def product(call: Call) -> Own | None:
    """A product of an activation and a matrix, from either side."""
    return _by_matrix(call, call.args[0], call.args[1])


def _by_matrix(call: Call, first: Any, second: Any) -> Own | None:
    x, weight = (first, second) if first.data else (second, first)
    return _weight(call, x, weight) if len(weight.shape) == 2 else None  # several matrices would repeat the activation


def _weight(call: Call, x: Value, weight: Value) -> Own | None:
    whole = weight.is_parameter and weight.base is not None and not weight.data
    if not (x.data and whole and len(operands_of(call)) == 1):
        return None
    return Own((1.0,), stored="weight", tensors=(str(weight.param),))
