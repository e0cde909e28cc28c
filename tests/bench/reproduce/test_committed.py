"""What is committed under benchmarks/reproduce is what the rules make of the committed observations."""

import json
import runpy
import shutil
from pathlib import Path

import pytest

from rekindle.bench.reproduce.catalogue import ENTRIES, entry
from rekindle.bench.reproduce.making import judge_again

FOLDER = Path(__file__).parents[3] / "benchmarks" / "reproduce"
COMMITTED = sorted(path.name.split(".")[0] for path in FOLDER.glob("*.cpu.md"))
pytestmark = pytest.mark.skipif(not COMMITTED, reason="no committed results: this is not a checkout")


def read(name):
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


@pytest.mark.parametrize("name", COMMITTED)
def test_verdicts_and_page_follow_from_the_observations_by_the_rules_and_notes_of_now(name, tmp_path):
    for path in FOLDER.glob(f"{name}.cpu.*"):
        shutil.copy(path, tmp_path)
    made = judge_again(entry(name), "cpu", tmp_path)
    assert [told(row) for row in read(f"{name}.cpu.jsonl")] == [told(row) for row in made.findings]
    assert (FOLDER / f"{name}.cpu.md").read_text() == made.page, "rekindle reproduce NAME --judge makes it anew"


def told(row):
    numbers = ("measured", "p", "p_against")
    rounded = {key: f"{row[key]:.6g}" for key in numbers if row.get(key) is not None}
    words = ("kind", "claim", "condition", "method", "measure", "n", "wins", "verdict")
    return {key: row.get(key) for key in words} | rounded


def test_every_result_is_of_an_entry():
    assert set(COMMITTED) <= set(ENTRIES)


def test_the_tables_are_those_of_the_rows():
    for path, text in runpy.run_path(str(FOLDER.parent / "tables.py"))["written"]().items():
        assert path.read_text() == text, "python benchmarks/tables.py makes it anew"
