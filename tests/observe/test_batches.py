from collections import UserDict

import torch

from rekindle.observe.batches import in_plain_dicts, inputs_of, labels_of, split, with_labels

X, WHOLE, REAL = torch.ones(2, 3), torch.tensor([1, 2]), torch.ones(2)


def test_inputs_and_targets():
    assert inputs_of((X, WHOLE)) is X is inputs_of([X]) is inputs_of(X) is inputs_of((X, WHOLE, WHOLE))
    assert split((X, REAL))[1] is REAL is split({"x": X, "labels": REAL})[1]
    batch = UserDict(x=X, labels=WHOLE)
    assert inputs_of(batch) is batch and split(batch)[1] is WHOLE
    pair = ({"x": X}, WHOLE)
    assert inputs_of(pair) is pair[0] and split(pair)[1] is WHOLE
    assert all(split(none)[1] is None for none in (X, (X,), (X, WHOLE, WHOLE), {"x": X}, ()))


def test_labels_are_integers():
    assert labels_of((X, WHOLE)) is WHOLE is labels_of([X, WHOLE]) is labels_of({"labels": WHOLE})
    assert all(labels_of(none) is None for none in (X, (X, REAL), (X,), (X, WHOLE, WHOLE), {"labels": REAL}, {"a": X}))
    assert labels_of((X, "text")) is None and labels_of((X, torch.zeros(2, dtype=torch.complex64))) is None


def test_other_labels():
    assert with_labels((X, WHOLE), REAL) == (X, REAL)
    batch = {"x": X, "labels": WHOLE}
    assert with_labels(batch, REAL) == {"x": X, "labels": REAL} and batch["labels"] is WHOLE


def test_mappings_of_any_class_become_dicts_but_not_what_is_an_argument():
    assert type(in_plain_dicts(UserDict(x=X))) is dict
    inputs, targets = in_plain_dicts((UserDict(x=X), WHOLE))
    assert type(inputs) is dict and targets is WHOLE and type(in_plain_dicts([UserDict(x=X), X])) is list
    deep = ((UserDict(x=X),), WHOLE)
    assert type(in_plain_dicts(deep)[0][0]) is UserDict and in_plain_dicts(X) is X
