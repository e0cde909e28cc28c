"""Work side by side is the same work."""

import pytest
import torch

from rekindle.kernels.parallel import side_by_side


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_in_order_by_one_thread_each_without_gradients(two_threads):
    def look(n):
        return n, torch.get_num_threads(), torch.is_grad_enabled()

    assert side_by_side(look, range(5)) == [(n, 1, False) for n in range(5)]
    assert torch.get_num_threads() == 2


def test_an_error_is_raised_and_the_threads_come_back(two_threads):
    def fail(n):
        raise ValueError(n)

    with pytest.raises(ValueError, match="0"):
        side_by_side(fail, range(3))
    assert torch.get_num_threads() == 2
