"""Regions: what is read is what is written, and nothing else moves."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from rekindle.graph.regions import MatrixView, UnitIndex, Whole

LAYOUTS = {
    "linear": (MatrixView((4, 3), (0,), (1,)), (4, 3), lambda w: w[None]),
    "conv1d_of_gpt2": (MatrixView((3, 4), (1,), (0,)), (3, 4), lambda w: w.T[None]),
    "convolution": (
        MatrixView((4, 3, 2, 2), (0,), (1,), (2, 3)),
        (4, 3, 2, 2),
        lambda w: torch.stack([w[:, :, i, j] for i in range(2) for j in range(2)]),
    ),
    "grouped": (
        MatrixView((2, 2, 3, 2, 2), (1,), (2,), (0, 3, 4)),
        (4, 3, 2, 2),
        lambda w: torch.stack([w[2 * g : 2 * g + 2, :, i, j] for g in range(2) for i in range(2) for j in range(2)]),
    ),
    "transposed": (
        MatrixView((3, 4, 2), (1,), (0,), (2,)),
        (3, 4, 2),
        lambda w: torch.stack([w[:, :, i].T for i in range(2)]),
    ),
    "rows": (MatrixView((6, 3), (0,), (1,), rows=torch.tensor([4, 2])), (6, 3), lambda w: w[[4, 2]][None]),
    "rows_and_columns": (
        MatrixView((6, 3), (0,), (1,), rows=torch.tensor([4, 2]), columns=torch.tensor([2, 0])),
        (6, 3),
        lambda w: w[[4, 2]][:, [2, 0]][None],
    ),
}


def test_matrix_views_read_what_a_person_would_write_down():
    for view, shape, by_hand in LAYOUTS.values():
        tensor = torch.randn(shape)
        assert torch.equal(view.read(tensor), by_hand(tensor))


def test_write_puts_back_and_leaves_the_rest():
    for view, shape, _ in LAYOUTS.values():
        tensor = torch.randn(shape)
        assert torch.equal(view.write(tensor, view.read(tensor)), tensor)
        new = view.write(tensor, torch.zeros_like(view.read(tensor)))
        assert torch.equal(new, tensor.masked_fill(view.mask(tensor), 0))
        assert int(view.mask(tensor).sum()) == view.read(tensor).numel()


def test_views_see_channels_last_tensors_alike():
    view, shape, by_hand = LAYOUTS["convolution"]
    tensor = torch.randn(shape)
    last = tensor.to(memory_format=torch.channels_last)
    assert torch.equal(view.read(last), by_hand(tensor))
    assert torch.equal(view.write(last, view.read(last) * 2), tensor * 2)


@given(st.data())
def test_unit_index_round_trip(data):
    groups, out, in_, kernel = (data.draw(st.integers(1, 3)) for _ in range(4))
    view = (groups, out, in_, kernel)
    units = data.draw(st.integers(1, groups * in_))
    index = torch.randperm(groups * in_, generator=torch.Generator().manual_seed(units))[:units].reshape(units, 1)
    where = UnitIndex(view, (0, 2), index)
    tensor = torch.randn(groups * out, in_, kernel)
    part = where.read(tensor)
    assert part.shape == (units, 1, out * kernel)
    for unit, position in enumerate(index[:, 0].tolist()):  # group g, input i: W[g's rows, i]
        g, i = divmod(position, in_)
        assert torch.equal(part[unit, 0], tensor[g * out : (g + 1) * out, i].reshape(-1))
    assert torch.equal(where.write(tensor, part), tensor)
    silent = where.write(tensor, torch.zeros_like(part))
    assert torch.equal(silent, tensor.masked_fill(where.mask(tensor), 0))


def test_some_units_of_an_index():
    where = UnitIndex((6, 2), (0,), torch.tensor([[0, 1], [2, 3], [4, 5]]))
    assert where.at(torch.tensor([2])).read(torch.arange(12.0).reshape(6, 2)).tolist() == [[[8, 9], [10, 11]]]


def test_whole():
    tensor = torch.randn(3)
    assert Whole().read(tensor) is tensor
    assert Whole().mask(tensor).all()
