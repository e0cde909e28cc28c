"""srank: against a loop over k, and from the features of a network."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from rekindle.metrics import srank
from tests.metrics.live import live, tiny, vectors


def slow(values, delta):
    for k in range(1, len(values) + 1):
        if sum(values[:k]) >= (1 - delta) * sum(values) - 1e-9:
            return k
    return 0


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12), st.sampled_from([0.01, 0.1, 0.5]))
def test_against_a_loop(values, delta):
    ordered = sorted(map(float, values), reverse=True)
    found = srank.srank(torch.tensor(ordered, dtype=torch.float64), delta)
    assert found == (slow(ordered, delta) if sum(ordered) else 0)


def test_reading_is_that_of_the_svd_of_all_features():
    model, batches = tiny(), vectors()
    reading = srank.measure(live(model, batches))
    x = torch.cat([x for x, _ in batches])
    expected = {"0": slow(torch.linalg.svdvals(model[:2](x).double()).tolist(), 0.01)}
    expected["2"] = slow(torch.linalg.svdvals(model[:4](x).double()).tolist(), 0.01)
    assert reading.details["rank"] == expected and reading.details["possible"] == {"0": 6, "2": 5}
    assert reading.parts == {"0": expected["0"] / 6, "2": expected["2"] / 5}
    assert reading.summary == sum(reading.parts.values()) / 2


def test_a_collapsed_layer_has_rank_one():
    model, batches = tiny(), vectors()
    with torch.no_grad():
        model[2].weight[:] = model[2].weight[:1].abs()
        model[2].bias.fill_(0)
    assert srank.measure(live(model, batches)).details["rank"]["2"] == 1


def test_few_samples_bound_the_rank():
    reading = srank.measure(live(tiny(), vectors(1, 2)))
    assert reading.details["possible"] == {"0": 2, "2": 2}
