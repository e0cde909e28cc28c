"""Metrics: one file a metric, found by its name; `audit` composes them."""
