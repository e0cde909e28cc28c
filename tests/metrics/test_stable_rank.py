"""Stable rank: from the norms of a matrix, and from the features of a network."""

import pytest
import torch

from rekindle.metrics import stable_rank
from tests.metrics.live import live, tiny, vectors


def test_it_is_the_ratio_of_two_norms():
    matrix = torch.randn(9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = stable_rank.stable_rank(torch.linalg.svdvals(matrix))
    norms = torch.linalg.matrix_norm(matrix, "fro") ** 2 / torch.linalg.matrix_norm(matrix, 2) ** 2
    assert found == pytest.approx(float(norms))
    assert stable_rank.stable_rank(torch.zeros(2)) == 0


def test_reading_is_that_of_all_features():
    model, batches = tiny(), vectors()
    reading = stable_rank.measure(live(model, batches))
    rows = model[:2](torch.cat([x for x, _ in batches])).double()
    expected = float(rows.norm() ** 2 / torch.linalg.matrix_norm(rows, 2) ** 2)
    assert reading.details["rank"]["0"] == pytest.approx(expected) and reading.parts["0"] == pytest.approx(expected / 6)
