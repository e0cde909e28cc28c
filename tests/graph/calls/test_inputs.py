import collections
import functools
from collections import UserDict, namedtuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from rekindle.errors import GraphError
from rekindle.graph import trace
from rekindle.graph.calls.inputs import Arguments, as_call, signature_of, takes

X = torch.ones(2, 4)
Pair = namedtuple("Pair", "first second")


class Two(nn.Module):
    def forward(self, image, mask, scale=1.0):
        return image * mask * scale


class Whole(nn.Module):
    def forward(self, batch, verbose=False):
        return batch


class Anything(nn.Module):
    def forward(self, *args, **kwargs):
        return args, kwargs


@pytest.mark.parametrize(
    ("example", "args", "names"),
    [
        (X, 1, []),
        ((X, X), 2, []),
        ([X, X], 2, []),
        ({"image": X, "mask": X}, 0, ["image", "mask"]),
        (UserDict(image=X, mask=X), 0, ["image", "mask"]),
        (collections.OrderedDict(image=X, mask=X, scale=2.0), 0, ["image", "mask", "scale"]),
        (Pair(X, X), 2, []),
        ((Pair(X, X),), 1, []),
        (({"image": X}, [X, X]), 2, []),
        ({1: X}, 1, []),
        ((), 0, []),
    ],
    ids=str,
)
def test_examples_as_arguments(example, args, names):
    call = as_call(Anything(), example)
    assert len(call.args) == args and list(call.kwargs) == names
    assert type(call.kwargs) is dict and call.kwargs is not example
    assert as_call(Two(), call) is call  # arguments stay what they are


def test_labels_stay_out_only_where_forward_does_not_take_them():
    class Taking(nn.Module):
        def forward(self, image, labels=None):
            return image

    batch = {"image": X, "labels": X}
    assert list(as_call(Taking(), batch).kwargs) == ["image", "labels"] == list(as_call(Anything(), batch).kwargs)
    assert list(as_call(nn.ReLU(), {"input": X, "labels": X}).kwargs) == ["input"]
    with pytest.raises(GraphError, match="label is not among them"):
        as_call(nn.ReLU(), {"input": X, "label": X})


@pytest.mark.parametrize(
    ("example", "got", "fix"),
    [
        (None, "None", "as the model takes it"),
        ("a sentence", "a str", "tokenized"),
        (b"", "a bytes", "tensors"),
        (np.ones(3), "a ndarray", "as_tensor"),
        (torch.utils.data.DataLoader([1]), "a DataLoader", r"next\(iter\(loader\)\)"),
        (iter([X]), "a list_iterator", r"next\(iterator\)"),
        ({"input": [[1, 2]], "mask": [1]}, "a dict of lists without a tensor", "return_tensors='pt'"),
        (({"input": X}, X), "a dict of forward's own arguments (input) and something beside it", r"batch\[0\]"),
    ],
)
def test_what_is_no_example(example, got, fix):
    with pytest.raises(GraphError, match=fix) as refused:
        as_call(nn.ReLU(), example)
    assert refused.value.got == got and "a dict of keyword arguments" in refused.value.expected


@pytest.mark.parametrize(
    ("model", "example", "got", "fix"),
    [
        (Two(), X, "one argument: no mask", "a tuple with one entry for each argument"),
        (Two(), (X,), "a tuple of 1 arguments: no mask", "a tuple with one entry"),
        (Two(), (X, X, 1.0, 2), "a tuple of 4 arguments: too many", "a tuple with one entry"),
        (Two(), {"image": X}, "a dict with the names image: no mask", "name the entries as forward does"),
        (Two(), {"image": X, "mask": X, "other": X}, "other is not among them", r"\(inputs, targets\)"),
        (Two(), {"imagee": X, "mask": X}, "no image; imagee is not among them", "did you mean image instead of imagee"),
        (Two(), {}, "an empty dict: no image; no mask", "a tuple with one entry"),
        (
            Whole(),
            {"x": X},
            "a dict with the names x: no batch",
            r"if the whole dict is the one argument batch, write \(batch,\)",
        ),
        (Whole(), UserDict(x=X), "a UserDict with the names x: no batch", r"write \(batch,\)"),
        (Whole(), [X, X, X], "a list of 3 arguments: too many", r"if the whole list is the one argument batch"),
        (Whole(), Pair(X, X)._replace(first=X) + (X,), "a tuple of 3 arguments: too many", "a tuple with one entry"),
        (nn.ReLU(), (X, X), "a tuple of 2 arguments: too many", r"pass the inputs: example=batch\[0\]"),
        (nn.ReLU(), [X, X], "a list of 2 arguments: too many", r"batch\[0\]; if the whole list is the one argument"),
    ],
    ids=range(13),
)
def test_arguments_that_forward_cannot_take(model, example, got, fix):
    with pytest.raises(GraphError, match=fix) as refused:
        as_call(model, example)
    assert got in refused.value.got and f"{type(model).__name__}.forward takes: (" in refused.value.expected
    with pytest.raises(GraphError, match=fix):  # and so says what everybody calls
        trace(model, example)


def test_a_packed_sequence_is_one_argument():
    packed = pack_sequence([X])
    assert as_call(nn.LSTM(4, 3), packed).args[0] is packed


def test_the_names_that_forward_takes_are_told():
    with pytest.raises(GraphError, match=r"Two.forward takes: \(image, mask, scale=...\)"):
        as_call(Two(), X)


def test_a_hook_may_change_the_arguments_so_that_nothing_is_refused():
    model = Two()
    model.register_forward_pre_hook(lambda module, args: (*args, *args))
    args, kwargs = as_call(model, X)
    assert torch.equal(model(*args, **kwargs), X)


def test_signatures():
    taken = signature_of(Two())
    assert takes(taken, "mask") and not takes(taken, "labels") and takes(signature_of(Anything()), "labels")
    wrapped = Two()
    wrapped.forward = functools.wraps(wrapped.forward)(lambda *args, **kwargs: None)  # as accelerate does
    assert signature_of(wrapped) == taken
    unreadable = nn.Module()
    unreadable.forward = max  # without a signature nothing is checked
    assert signature_of(unreadable) is None and as_call(unreadable, {"any": X}) == Arguments((), {"any": X})


@pytest.mark.parametrize("number", [3, 2.5, True])
def test_a_number_alone_is_no_example(number):
    with pytest.raises(GraphError, match="an example: a tensor") as refused:
        as_call(nn.ReLU(), number)
    assert "goes into a tuple" in refused.value.fix
    assert as_call(nn.ReLU(), (number,)).args == (number,)
