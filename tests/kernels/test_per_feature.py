"""Sums per feature, against torch's own reductions in double precision."""

import pytest
import torch

from rekindle.kernels.per_feature import PIECE, by_feature, largest, magnitude, total

SHAPES = [((16, 5), 1), ((4, 6, 5), 2), ((8, 5, 3, 3), 1), ((5, 3, 3), 0), ((5,), 0), ((0, 5), 1)]


def parts(dtype=torch.float32):
    torch.manual_seed(0)
    for shape, dim in SHAPES:
        yield torch.randn(shape).to(dtype), dim
    yield torch.randn(8, 5, 3, 3).to(dtype).to(memory_format=torch.channels_last), 1
    yield torch.randn(5, 8).to(dtype).t(), 1
    yield torch.randn(PIECE // 16 + 7, 4, 9).to(dtype), 1  # several pieces, the last one short
    yield torch.randn(3, 2, PIECE + 1).to(dtype), 1  # a piece is more than the buffer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_against_plain_reductions(dtype):
    for x, dim in parts(dtype):
        others = [d for d in range(x.dim()) if d != dim]
        wide = x.double()
        flat = by_feature(x, dim)
        before = x.clone()
        expected = wide.movedim(dim, 0).reshape(x.shape[dim], -1)
        for function, value in (
            (total, expected.sum(1)),
            (magnitude, expected.abs().sum(1)),
            (largest, expected.abs().amax(1) if expected.shape[1] else torch.zeros(5)),
        ):
            found = function(flat)
            assert found.dtype == (dtype if dtype.itemsize > 2 else torch.float32)
            torch.testing.assert_close(found.double(), value.double(), rtol=1e-4, atol=2e-3, msg=f"{function} {others}")
        assert torch.equal(x, before)


def test_channels_last_is_not_copied():
    x = torch.randn(8, 5, 3, 3).to(memory_format=torch.channels_last)
    assert by_feature(x, 1).data_ptr() == x.data_ptr()


def test_any_firing_counts_however_small():
    x = torch.zeros(1000, 3)
    x[777, 1] = -1e-30
    assert (largest(by_feature(x, 1)) > 0).tolist() == [False, True, False]
