"""What is committed is what the rules make of the committed observations."""

import json
import shutil
from pathlib import Path

import pytest

import papers
from papers.catalog import EXPERIMENTS
from papers.pipeline import judge_again, results_folder

FOLDER = Path(papers.__file__).parent
PAGES = {path.name.split(".")[0]: path for path in sorted(FOLDER.glob("*/results/*.cpu.md"))}


def test_every_result_is_of_an_experiment_and_in_its_folder():
    assert PAGES
    for name, page in PAGES.items():
        assert page.parent == results_folder(EXPERIMENTS[name], FOLDER)


@pytest.mark.parametrize("name", PAGES)
def test_verdicts_and_page_follow_from_the_observations_by_the_rules_and_notes_of_now(name, tmp_path):
    page = PAGES[name]
    for path in page.parent.glob(f"{name}.cpu.*"):
        shutil.copy(path, tmp_path)
    result = judge_again(EXPERIMENTS[name], "cpu", tmp_path)
    assert [judged(row) for row in read(page.with_suffix(".jsonl"))] == [judged(row) for row in result.findings]
    assert page.read_text() == result.page, "rekindle reproduce NAME --judge --out papers writes it anew"


@pytest.mark.parametrize("name", PAGES)
def test_rows_name_their_experiment(name):
    for ending in (".jsonl", ".observations.jsonl"):
        assert {(row["entry"], row["preset"]) for row in read(PAGES[name].with_suffix(ending))} == {(name, "cpu")}


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def judged(row):
    numbers = ("measured", "p", "p_against")
    rounded = {key: f"{row[key]:.6g}" for key in numbers if row.get(key) is not None}
    words = ("kind", "claim", "condition", "method", "measure", "n", "wins", "verdict")
    return {key: row.get(key) for key in words} | rounded
