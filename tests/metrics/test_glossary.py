"""The glossary has a paragraph for each metric, and for no other."""

import re

from rekindle.metrics.registry import metric_keys

NAMED = "sfe dfi frozen weight_norm distance_from_init balancedness lipschitz_bound stability spectrum dormant \
zero_activation srank effective_rank stable_rank feature_covariance fisher_score hessian_top sharpness margin \
weight_size gradient_norm trainability".split()


def test_each_metric_has_a_paragraph(root):
    text = (root / "docs" / "glossary.md").read_text("utf-8")
    entries = dict(re.findall(r"^\*\*`(\w+)`\*\*(.*?)(?=\n\n)", text + "\n\n", re.MULTILINE | re.DOTALL))
    assert set(NAMED) | set(metric_keys()) == set(entries)
    for key, paragraph in entries.items():
        assert "Range" in paragraph and "Known" in paragraph, key
