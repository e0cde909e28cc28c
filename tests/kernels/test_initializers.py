"""Laws: draws have the moments that they claim."""

import pytest
import torch

from rekindle.kernels.initializers import Constant, Normal, Uniform


@pytest.mark.parametrize("initializer", [Uniform(-0.5, 0.5), Normal(0.02), Constant(3.0)])
def test_standard_deviation(initializer):
    values = initializer.draw((200, 200), torch.Generator().manual_seed(0))
    assert float(values.std()) == pytest.approx(initializer.std, rel=0.02, abs=1e-6)


def test_padding_row_is_zero():
    values = Normal(1.0, zero_row=2).draw((4, 3), torch.Generator().manual_seed(0))
    assert not values[2].any() and values[1].all()
