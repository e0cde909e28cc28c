"""Feature covariance: against loops over samples, and FIRE's Theorem 1 on random networks."""

import pytest
import torch
from torch import nn

from rekindle.errors import PlanError
from rekindle.graph import trace
from rekindle.metrics import feature_covariance
from rekindle.metrics.features import gather_features
from rekindle.testing.aged import bits
from tests.metrics.live import live, tiny, vectors


def slow(h, other):
    total = 0.0
    for i in range(len(h)):
        for j in range(len(h)):
            pair = [float(x[i] @ x[j]) / sum(float(v) ** 2 for v in x.reshape(-1)) for x in (h, other)]
            total += (pair[0] - pair[1]) ** 2
    return total**0.5


def test_against_a_loop_over_pairs_of_samples():
    random = torch.Generator().manual_seed(0)
    h, other = (torch.randn(6, n, generator=random, dtype=torch.float64) for n in (3, 5))
    assert feature_covariance.feature_covariance(h, other) == pytest.approx(slow(h, other))
    assert feature_covariance.feature_covariance(h, -7 * h) == pytest.approx(0)


@pytest.mark.parametrize("seed", range(5))
def test_theorem_1_bounds_it(seed):
    torch.manual_seed(seed)
    now, then = (nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False)) for _ in range(2))
    z = torch.randn(10, 4)
    outputs = [net(z) for net in (now, then)]
    norms = [max(float(torch.linalg.matrix_norm(net[n].weight, 2)) for net in (now, then)) for n in (0, 2)]
    sfe = sum(float((now[n].weight - then[n].weight).square().sum()) for n in (0, 2))
    smallest = min(float(out.norm()) for out in outputs)
    product = norms[0] * norms[1]
    bound = 16 * float(z.norm()) ** 2 / smallest**2 * product**2 * sum(1 / b**2 for b in norms) * sfe
    assert feature_covariance.feature_covariance(*outputs) ** 2 <= bound


def test_reading_compares_with_the_reference_on_the_same_samples():
    model, other, batches = tiny(0), tiny(5), vectors()
    reading = feature_covariance.measure(live(model, batches, reference=bits(other)))
    x = torch.cat([x for x, _ in batches])
    for name, depth in (("0", 2), ("2", 4)):
        expected = slow(model[:depth](x).double(), other[:depth](x).double())
        assert reading.parts[name] == pytest.approx(expected, rel=1e-5)
    assert reading.summary == reading.parts["2"]


def test_features_that_do_not_match_are_refused():
    model, batches = tiny(), vectors()
    graph = trace(model, batches[0][0])
    features = gather_features(model, graph, batches)
    for other in (gather_features(model, graph, batches, seed=1), gather_features(model, graph, batches[:2])):
        with pytest.raises(PlanError, match="same batches"):
            feature_covariance.distances(features, other)
