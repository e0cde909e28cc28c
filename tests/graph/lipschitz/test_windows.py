"""Counts of windows by loops, and Schur's test against the matrix itself."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from rekindle.graph.lipschitz.windows import most_windows, nonnegative_bound, several


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3, 6])
@pytest.mark.parametrize("dilation", [1, 2])
def test_windows_by_loops(kernel, stride, dilation):
    for size, padding in itertools.product((9, 12), (0, kernel // 2)):
        pooled = F.max_pool1d(torch.zeros(1, 1, size), kernel, stride, padding, dilation)
        read = [0] * size
        for window, place in itertools.product(range(pooled.shape[-1]), range(kernel)):
            at = window * stride - padding + place * dilation
            if 0 <= at < size:
                read[at] += 1
        assert most_windows(size, pooled.shape[-1], kernel, stride, padding, dilation) == max(read)


REPEATED = {
    "repeat": lambda x: x.repeat(1, 1, 3),
    "reflect": lambda x: F.pad(x, (3, 2), mode="reflect"),
    "replicate": lambda x: F.pad(x, (3, 2), mode="replicate"),
    "nearest": lambda x: F.interpolate(x, size=11),
    "means": lambda x: F.avg_pool1d(x, 2),
}
OTHERS = {
    "overlap": lambda x: F.avg_pool1d(x, 3, 1, 1),
    "linear": lambda x: F.interpolate(x, scale_factor=3, mode="linear"),
    "adaptive": lambda x: F.adaptive_avg_pool1d(x, 4),
}


@pytest.mark.parametrize("name", [*REPEATED, *OTHERS])
def test_schurs_test_bounds_the_norm_and_is_reached_by_repetitions_and_separate_means(name):
    operation = {**REPEATED, **OTHERS}[name]
    matrix = operation(torch.eye(6, dtype=torch.float64)[:, None])[:, 0].T  # [out, in]
    norm, bound = float(torch.linalg.matrix_norm(matrix, 2)), nonnegative_bound(operation, torch.ones(1, 1, 6))
    assert norm <= bound * (1 + 1e-6)
    assert bound == pytest.approx(norm, rel=1e-6 if name in REPEATED else 0.25)


def test_settings_for_each_dimension():
    assert several(2, 3) == [2, 2, 2] and several([4], 2) == [4, 4] and several((1, 2, 3), 3) == [1, 2, 3]
