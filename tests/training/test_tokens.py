import numpy as np
import pytest
import torch

from rekindle.errors import RekindleError
from rekindle.training.tokens import Tokens

STREAMS = {"a": np.arange(10, dtype=np.uint16), "b": np.arange(100, 130, dtype=np.uint16)}


def test_every_window_can_be_drawn_and_none_crosses_from_one_stream_into_the_other():
    tokens = Tokens(STREAMS, context=4, shares=(0.5, 0.5))
    assert len(tokens) == 6 + 26
    inputs, labels = tokens.pair(slice(None))
    assert torch.equal(inputs[:, 1:], labels[:, :-1])
    assert torch.equal(inputs + 1, labels)  # both streams count upward: a window across would jump
    assert inputs[:, 0].tolist() == [*range(6), *range(100, 126)]


def test_streams_are_drawn_by_their_shares():
    tokens = Tokens(STREAMS, context=4, shares=(0.1, 0.9))
    places = tokens.draw(100, 50, torch.Generator().manual_seed(0))
    assert places.shape == (100, 50)
    assert (places < 6).float().mean().item() == pytest.approx(0.1, abs=0.02)
    assert sorted(places.unique().tolist()) == list(range(32))  # and every place in them
    counts = places[places >= 6].bincount(minlength=32)[6:]
    assert counts.float().std() < 0.2 * counts.float().mean()
    first = Tokens(STREAMS, context=4).draw(10, 10, torch.Generator())
    assert first.max() < 6


def test_the_same_generator_draws_the_same_places():
    tokens = Tokens(STREAMS, context=4, shares=(0.5, 0.5))
    one, other = (tokens.draw(3, 5, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one, other)


def test_evaluated_windows_lie_beside_each_other_or_at_even_distances():
    tokens = Tokens(STREAMS, context=4)
    starts = [int(row[0]) for inputs, _ in tokens.in_order(3) for row in inputs]
    assert starts == [0, 4, 100, 104, 108, 112, 116, 120, 124]
    few = Tokens(STREAMS, context=4, windows=3)
    assert [int(row[0]) for inputs, _ in few.in_order(3) for row in inputs] == [0, 4, 100, 112, 124]


def test_a_file_is_read_where_it_is_drawn(tmp_path):
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "train.bin")
    stream = np.memmap(tmp_path / "train.bin", dtype=np.uint16, mode="r")
    inputs, _ = Tokens({"text": stream}, context=8).pair(torch.tensor([990, 5]))
    assert inputs.dtype == torch.int64 and inputs[:, 0].tolist() == [990, 5]


def test_a_text_that_is_too_short_is_refused():
    with pytest.raises(RekindleError, match="at least 11 tokens in 'a'"):
        Tokens(STREAMS, context=10)
