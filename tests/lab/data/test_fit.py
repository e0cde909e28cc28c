import pytest
import torch

from rekindle.errors import RekindleError
from rekindle.lab.data.fit import Fit


def test_gray_to_color_and_back():
    gray = torch.rand(2, 1, 4, 4)
    assert torch.equal(Fit((3, 4, 4))(gray), gray.repeat(1, 3, 1, 1))
    color = torch.rand(2, 3, 4, 4)
    torch.testing.assert_close(Fit((1, 4, 4))(color), color.mean(1, keepdim=True))
    assert Fit((3, 4, 4))(color) is color


def test_resize_keeps_a_flat_image_flat():
    torch.testing.assert_close(Fit((1, 9, 9))(torch.full((1, 1, 4, 4), 0.7)), torch.full((1, 1, 9, 9), 0.7))


@pytest.mark.parametrize(("shape", "given"), [((4, 8, 8), (2, 3, 8, 8)), ((128,), (2, 3, 8, 8)), ((3, 8, 8), (2, 128))])
def test_what_cannot_fit_is_told(shape, given):
    with pytest.raises(RekindleError, match="cannot|can be brought"):
        Fit(shape)(torch.rand(given))
