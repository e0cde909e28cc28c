"""Of every kind of tensor it is said why it cannot be computed with, and of plain ones nothing."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rekindle.graph.plain import (
    is_counter,
    not_plain,
    not_plain_in,
    overlaps_itself,
    shapes_of,
    valueless,
    why_not_in_place,
    why_not_plain,
)

W = torch.arange(24.0).reshape(4, 6)


class Tagged(torch.Tensor):
    """A class that only carries a name: torch's own operations work on it."""


class Watched(torch.Tensor):
    """A class that takes operations over by `__torch_function__`."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})


PLAIN = {
    "float32": W,
    "float64": W.double(),
    "float16": W.half(),
    "bfloat16": W.bfloat16(),
    "parameter": nn.Parameter(W),
    "buffer": nn.Buffer(W),
    "scalar": torch.tensor(1.0),
    "transposed": W.t(),
    "channels last": torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "every second": W[:, ::2],
    "crossing strides": torch.arange(20.0).as_strided((2, 3), (3, 2)),
    "one row expanded to one": torch.ones(1, 3).expand(1, 3),
    "subclass without operations": nn.Parameter(W.as_subclass(Tagged)),
    "meta": W.to("meta"),
}
ODD = {
    "int8": (W.to(torch.int8), "int8: whole numbers"),
    "bool": (W > 3, "bool: whole numbers"),
    "float8": (W.to(torch.float8_e4m3fn), "float8_e4m3fn: values that go with a scale"),
    "complex": (W.to(torch.complex64), "complex64"),
    "int8 on meta": (W.to(torch.int8).to("meta"), "int8"),
    "coo": (W.to_sparse(), "sparse_coo"),
    "csr": (W.to_sparse_csr(), "sparse_csr"),
    "qint8": (torch.quantize_per_tensor(W, 0.1, 0, torch.qint8), "quantized (qint8)"),
    "jagged": (torch.nested.nested_tensor([W[:1], W[:2]], layout=torch.jagged), "nested"),
    "nested": (torch.nested.nested_tensor([W[:1], W[:2]]), "nested"),
    "expanded": (torch.ones(3, 1).expand(3, 2), "share memory"),
    "windows": (torch.arange(9.0).unfold(0, 3, 1), "share memory"),
    "crossing": (torch.arange(20.0).as_strided((3, 3), (2, 4)), "share memory"),
    "lazy": (nn.LazyLinear(2).weight, "not initialized"),
    "own function": (W.as_subclass(Watched), "of class Watched"),
    "no values": (torch.empty(0, 3), "no values"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain(name):
    assert why_not_plain(PLAIN[name]) == "" == why_not_in_place(PLAIN[name])


@pytest.mark.parametrize("name", ODD)
def test_odd(name):
    tensor, said = ODD[name]
    assert said in why_not_plain(tensor)
    by_number = name in ("int8", "bool", "float8", "complex", "int8 on meta", "no values")
    assert bool(why_not_in_place(tensor)) is not by_number  # these can be copied


def test_fakes_are_of_a_class_of_their_own():
    with FakeTensorMode() as mode:
        assert "of class FakeTensor" in why_not_plain(mode.from_tensor(W))


def test_overlaps_are_told_from_strides_that_only_cross():
    for shape, strides in (
        ((3, 3), (2, 4)),
        ((2, 2), (1, 1)),
        ((4, 2), (1, 3)),
        ((2, 3), (3, 2)),
        ((2, 2, 2), (1, 2, 3)),
    ):
        places = [
            sum(i * s for i, s in zip(index, strides, strict=True)) for index in torch.ones(shape).nonzero().tolist()
        ]
        tensor = torch.zeros(40).as_strided(shape, strides)
        assert overlaps_itself(tensor) is (len(set(places)) < len(places)), (shape, strides)


def test_shapes_of_nested_tensors_are_the_number_of_their_values():
    assert shapes_of({"a": W, "b": ODD["nested"][0], "c": ODD["jagged"][0]}) == {"a": (4, 6), "b": (18,), "c": (18,)}


def test_of_buffers_only_what_may_be_a_weight_counts():
    tensors = {
        "weight": W.to(torch.int64),
        "codes": W.to(torch.int8),
        "mask": W > 3,
        "position_ids": W.long(),
        "scales": W[0].to(torch.int8),
        "norm.num_batches_tracked": torch.tensor(3),
        "norm.running_mean": W[0].to(torch.complex64),
        "plain": W,
    }
    assert set(not_plain(tensors, ["weight"])) == {"weight", "codes", "norm.running_mean"}
    assert is_counter("norm.num_batches_tracked", tensors["norm.num_batches_tracked"])
    assert not is_counter("norm.running_mean", tensors["norm.running_mean"])
    assert not is_counter("weight", tensors["weight"])


@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_packed_into_objects_are_named():
    layers = nn.Sequential(nn.Linear(3, 3), nn.LSTM(3, 3), nn.Linear(3, 2))
    model = torch.ao.quantization.quantize_dynamic(layers, {"0", nn.LSTM}, dtype=torch.qint8)
    found = not_plain_in(model)
    assert set(found) == {"0._packed_params._packed_params", "1._all_weight_values.0.param"}
    assert all("packed into an object" in why for why in found.values())


def test_what_is_on_the_meta_device_has_no_values():
    assert valueless({"a": W, "b": W.to("meta")}) == ["b"]
