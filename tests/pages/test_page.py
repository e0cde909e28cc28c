"""A page is one file that draws its charts without a network, sorts its tables and fits on a phone."""

import math
import sys

import pytest

import rekindle as rk
from rekindle.pages.page import Chart, Rows, Section, Text, page, write_page
from tests.pages.browser import opened

LINE = {
    "mark": "line",
    "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}},
}
SECTIONS = [
    Section(
        "First </script> part",
        [
            Text("Words with <b> & marks.", "warning"),
            Rows(["name", "value"], [["ten", 10], ["nine", 9.5], ["two", 2]], frozenset({(0, 1)})),
            Chart("A line", LINE, [{"x": n, "y": n * n} for n in range(9)], "It rises."),
            Chart("A line with a hole </script>", LINE, [{"x": 0, "y": 1.0}, {"x": 1, "y": math.nan}]),
        ],
    )
]


@pytest.fixture
def file(tmp_path):
    pytest.importorskip("vl_convert")
    return write_page(tmp_path / "page.html", "A page", SECTIONS, footer="made by a test")


def test_charts_are_drawn_without_network_or_errors(file):
    count = "document.querySelectorAll('svg .mark-line').length"
    marks = f"setTimeout(() => {{ document.body.dataset.paths = {count} }}, 3000)"
    found = opened(file, script=marks)
    assert found["problems"] == "[]"
    assert found["console"] == ""
    assert found["drawn"] == "2"
    assert int(found["paths"]) >= 2


def test_a_chart_that_cannot_be_drawn_is_noticed(tmp_path):
    pytest.importorskip("vl_convert")
    broken = [Section("x", [Chart("bad", {"mark": "nonsense", "encoding": 3}, [])])]
    found = opened(write_page(tmp_path / "bad.html", "bad", broken))
    assert found["drawn"] == "0" or found["problems"] != "[]"


def test_numbers_sort_as_numbers(file):
    click = "const th = document.querySelectorAll('th')[1]; th.click(); "
    names = "[...document.querySelectorAll('tbody tr')].map(r => r.cells[0].textContent)"
    read = f"document.body.dataset.order = {names}.join()"
    assert opened(file, script=click + read)["order"] == "two,nine,ten"
    assert opened(file, script=click + "th.click(); " + read)["order"] == "ten,nine,two"


def test_it_fits_on_a_phone(file):
    script = "setTimeout(() => { document.body.dataset.wide = document.documentElement.scrollWidth }, 3000)"
    assert int(opened(file, script=script, width=500)["wide"]) <= 500


def test_text_is_escaped_and_the_numbers_can_be_downloaded():
    pytest.importorskip("vl_convert")
    text = page("<title>", SECTIONS)
    assert "&lt;title&gt;" in text
    assert "Words with &lt;b&gt; &amp; marks." in text
    assert "download='a-line.csv'" in text
    assert "x%2Cy%0D%0A0%2C0" in text


def test_without_the_drawing_library_the_error_says_what_to_install(monkeypatch):
    from rekindle.pages import page as module

    module._library.cache_clear()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(rk.RekindleError, match=r"rekindle\[report\]"):
        page("x", SECTIONS)
    module._library.cache_clear()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(rk.RekindleError, match="make the folder"):
        write_page(tmp_path / "no" / "page.html", "x", [Section("x", [Text("y")])])
