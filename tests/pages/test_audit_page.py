"""The page of an audit, in a real browser."""

import pytest
import torch

import rekindle as rk
from rekindle.pages.audit_page import sections_of
from rekindle.pages.page import Chart
from tests.pages.browser import opened


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    model = rk.lab.models.MLP([64, 100, 100, 10])
    data = [(torch.randn(64, 64), torch.randint(0, 10, (64,))) for _ in range(3)]
    with torch.no_grad():
        model.layers[0].bias[:70] = -100.0
    return rk.audit(model, data)


def test_every_chart_is_drawn_on_a_desk_and_on_a_phone(found, tmp_path):
    pytest.importorskip("vl_convert")
    page = found.to_html(tmp_path / "audit.html")
    charts = [item for section in sections_of(found) for item in section.content if isinstance(item, Chart)]
    titles = {chart.title for chart in charts}
    assert {"Weight norms", "Singular values", "Activity of units", "Loss along noise", "Trainability"} <= titles
    wide = "setTimeout(() => { document.body.dataset.wide = document.documentElement.scrollWidth }, 4000)"
    for width in (1000, 500):
        marks = opened(page, script=wide, width=width)
        assert marks["problems"] == "[]"
        assert marks["console"] == ""
        assert int(marks["drawn"]) == len(charts)
        assert int(marks["wide"]) <= width


def test_findings_come_first_with_their_remedy(found, tmp_path):
    pytest.importorskip("vl_convert")
    text = found.to_html(tmp_path / "audit.html").read_text()
    assert text.index("no longer respond") < text.index("Readings")
    assert "redo" in text
