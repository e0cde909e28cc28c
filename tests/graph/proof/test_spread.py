"""What is computed again where tensors differ, and where it ends."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rekindle.graph.proof.recorder import record
from rekindle.graph.proof.spread import Broken, Spread, change
from rekindle.graph.proof.tape import Tape, Unfollowable

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).double()


WEIGHTS = {"a": drawn(4, 3), "b": drawn(6, 4), "c": drawn(2, 6)}


def chain(own, x):
    return [torch.tanh(torch.tanh(x @ own["a"].t()) @ own["b"].t()) @ own["c"].t()]


def tape_of(program=chain, weights=WEIGHTS) -> Tape:
    return record(program, weights, set(weights), X)


def spread(tape: Tape, *variants: dict[str, Tensor]) -> Spread:
    return Spread(tape, variants, 1e-9)


def test_a_silent_reader_ends_it():
    tape = tape_of()
    silent = torch.zeros_like(WEIGHTS["b"])
    found = spread(tape, {"a": WEIGHTS["a"], "b": silent}, {"a": WEIGHTS["a"] + 1, "b": silent})
    assert list(found.reads()) == [] and found.outputs() == 0
    assert tape.evaluations < len(tape.nodes) * 2  # behind the reader nothing is run again


def test_a_reader_that_is_not_silent_is_named_and_passed():
    tape = tape_of()
    found = spread(tape, {"a": WEIGHTS["a"]}, {"a": WEIGHTS["a"] + 1})
    reads = list(found.reads())
    assert [tape.names_behind(read.side.other) for read in reads] == [["b"], ["c"]]
    assert found.outputs() > 0 and reads[0].variants[0].shape == (5, 4)


def test_writing_is_no_reading():
    tape = tape_of()
    reads = list(spread(tape, {"c": WEIGHTS["c"]}, {"c": WEIGHTS["c"] + 1}).reads())
    assert reads == []


def scores(own, x):
    queries, keys, values = (x @ own[name].t() for name in ("q", "k", "v"))
    return [torch.softmax(queries @ torch.cos(keys).sub(1).t(), -1) @ values]


def test_silence_is_looked_up_where_it_meets_a_difference():
    """With keys at zero cos - 1 is zero too: queries have nothing to meet."""
    weights = {"q": drawn(4, 3), "k": drawn(4, 3) + 1, "v": drawn(2, 3)}
    tape, zero = tape_of(scores, weights), torch.zeros(4, 3).double()
    loud = spread(tape, {"q": weights["q"]}, {"q": weights["q"] + 1})
    still = spread(tape, {"q": weights["q"], "k": zero}, {"q": weights["q"] + 1, "k": zero})
    assert [*loud.reads(), *still.reads()] == []
    assert loud.outputs() > 0 and still.outputs() == 0


def test_no_numbers_any_more():
    tape = tape_of(lambda own, x: [F.relu(x @ own["a"].t()) / own["b"].sum()])
    zero = torch.zeros_like(WEIGHTS["b"])
    found = spread(tape, {"a": WEIGHTS["a"], "b": zero}, {"a": WEIGHTS["a"] + 1, "b": zero})
    with pytest.raises(Broken):
        list(found.reads())


def test_change_is_relative_to_what_changes():
    huge = torch.tensor([1.0, -1e300, float("-inf")]).double()
    assert change(huge, huge.clone()) == 0
    assert change(huge, huge + torch.tensor([0.5, 0, 0])) == pytest.approx(0.5, rel=1e-2)
    assert change(torch.tensor([True]), torch.tensor([False])) == float("inf")
    assert change(torch.tensor([1.0]), torch.tensor([float("nan")])) == float("inf")
    with pytest.raises(Unfollowable):
        change(torch.zeros(2), torch.zeros(3))
