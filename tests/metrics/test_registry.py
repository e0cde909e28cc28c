"""Metrics are found by their file."""

import pytest

from rekindle.errors import SettingsError
from rekindle.metrics.reading import MetricCard
from rekindle.metrics.registry import list_metrics, metric, metric_keys

MINE = {"sfe", "dfi", "frozen", "weight_norm", "distance_from_init", "balancedness", "lipschitz_bound", "stability"}


def test_every_metric_has_a_card_a_formula_and_a_reading():
    assert MINE | {"spectrum"} <= set(metric_keys())
    for card in list_metrics():
        module = metric(card.key)
        assert isinstance(card, MetricCard) and callable(getattr(module, card.key)) and callable(module.measure)
        assert card.range[0] < card.range[1] and card.needs and card.known


def test_other_files_of_the_room_are_none():
    assert not {"reading", "registry", "features", "audit", "_units", "_matrices"} & set(metric_keys())


def test_unknown_key():
    with pytest.raises(SettingsError, match="expected: a metric: .*dfi"):
        metric("dif")
