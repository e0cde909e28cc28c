"""The page of a real small sweep on digits, in a real browser; and what it says about folders that are not whole."""

import json
import shutil

import pytest

from rekindle.lab.report.load_runs import read_runs
from rekindle.lab.report.runs_page import write_runs_page
from rekindle.pages.page import Chart, Rows
from tests.lab.report.made_up import PATH, items, made_up, words
from tests.pages.browser import opened

# --- in the browser ---


def test_every_chart_is_drawn_and_tables_sort_on_a_desk_and_on_a_phone(folder, found, tmp_path):
    pytest.importorskip("vl_convert")
    page = write_runs_page(folder, tmp_path / "runs.html")
    charts = items(found, Chart)
    assert [chart.title for chart in charts] == [
        "Accuracy over all stages",
        "Change of the accuracy right after the boundary",
        "SFE against DfI of the interventions",
        "SFE against DfI at the stages' ends",
        "Loss over all stages",
        "Deviation from isometry over all stages",
        "Squared Frobenius error over all stages",
        "Seconds of a run",
    ]
    for width in (1000, 500):
        marks = opened(page, script=LOOK, width=width)
        assert (marks["problems"], marks["console"]) == ("[]", "")
        assert int(marks["drawn"]) == len(charts)
        assert int(marks["wide"]) <= width
        assert marks["lines"] == "2 2 1"  # a line and a band for each method, a rule for the boundary
        up, down = ([float(value) for value in json.loads(marks[name])] for name in ("up", "down"))
        assert up == sorted(up) and down == sorted(up, reverse=True) and len(up) == 2


LOOK = """
const table = document.querySelector('table'), head = table.querySelectorAll('th')[1];
const column = () => JSON.stringify([...table.tBodies[0].rows].map(row => row.cells[1].dataset.value));
head.click(); document.body.dataset.up = column();
head.click(); document.body.dataset.down = column();
setTimeout(() => {
    document.body.dataset.wide = document.documentElement.scrollWidth;
    const count = what => document.querySelectorAll('#chart-0 .role-mark' + what).length;
    const found = ['.mark-line path', '.mark-area path', '.mark-rule line'].map(count);
    document.body.dataset.lines = found.join(' ');
}, 4000)"""


def test_failed_and_open_runs_are_told(found):
    told = words(found)
    assert "8 runs: 6 finished, 1 failed, 1 open" in told
    [table] = [item for item in items(found, Rows) if "error" in item.columns]
    assert table.rows[0][-1] == "MemoryError: too <big>" and table.rows[0][2] == "fresh"


def test_the_page_holds_settings_versions_and_no_unescaped_text(found, tmp_path):
    pytest.importorskip("vl_convert")
    text = write_runs_page(found, tmp_path / "runs.html").read_text()
    assert "MemoryError: too &lt;big&gt;" in text and "<big>" not in text
    assert PATH in text and "adam:lr=1e-3" in text and "Versions" in text and "torch" in text


def test_values_of_a_setting_are_in_order(tmp_path):
    for rate in ("1e-3", "0.1", "0.02"):
        made_up(tmp_path, {"none": [0.5] * 11}, fields={"optimizer": f"adam:lr={rate}"})
    rows = {
        row[0]: row[1] for table in items(read_runs(tmp_path), Rows) if "field" in table.columns for row in table.rows
    }
    assert rows["seed"] == " | ".join(map(str, range(11)))
    assert rows["optimizer"] == "adam:lr=1e-3 | adam:lr=0.02 | adam:lr=0.1"


def test_other_versions_are_warned_of(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "mixed")
    path = next((tmp_path / "mixed").glob("*/run.json"))
    content = json.loads(path.read_text())
    content["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(content))
    assert "Not all runs were made with the same torch" in words(read_runs(tmp_path / "mixed"))
