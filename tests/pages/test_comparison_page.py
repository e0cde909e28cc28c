"""The page of a comparison, in a real browser."""

import pytest
import torch
from torch import nn

import rekindle as rk
from rekindle.pages.comparison_page import sections_of, write_comparison_page
from tests.pages.browser import opened


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    data = (torch.randn(64, 8), torch.randint(3, (64,)))
    methods = ["shrink_perturb", "l2:strength=1e30"]  # the second diverges
    return rk.compare(nn.Linear(8, 3), data, data, methods, budget=6, seeds=2, optimizer="sgd:lr=1")


def test_the_verdict_comes_first_and_failures_are_told(found):
    sections = {section.title: section.content for section in sections_of(found)}
    assert list(sections) == ["Verdict", "Ways to go on", "Scores", "Failed"]
    assert sections["Verdict"][0].words == found.verdict
    assert [row[0] for row in sections["Ways to go on"][0].rows] == ["none", "shrink_perturb", "fresh"]
    assert sections["Failed"][0].rows[0][0] == "l2:strength=1e30"
    differences, seeds = sections["Scores"]
    assert [row["method"] for row in differences.data] == ["shrink_perturb", "fresh"]
    assert differences.data[0]["difference"] == 100 * found.gap("shrink_perturb", "none").mean
    assert len(seeds.data) == 12


def test_every_chart_is_drawn(found, tmp_path):
    pytest.importorskip("vl_convert")
    marks = opened(write_comparison_page(found, tmp_path / "page.html"))
    assert (marks["problems"], marks["console"], marks["drawn"]) == ("[]", "", "2")
