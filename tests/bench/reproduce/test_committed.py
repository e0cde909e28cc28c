"""What is committed under benchmarks/reproduce is what the rules make of the committed observations."""

import json
from pathlib import Path

import pytest

from rekindle.bench.reproduce.catalogue import ENTRIES, entry
from rekindle.bench.reproduce.making import judge

FOLDER = Path(__file__).parents[3] / "benchmarks" / "reproduce"
COMMITTED = sorted(path.name.split(".")[0] for path in FOLDER.glob("*.md"))
pytestmark = pytest.mark.skipif(not COMMITTED, reason="no committed results: this is not a checkout")


def read(name):
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


@pytest.mark.parametrize("name", COMMITTED)
def test_verdicts_follow_from_the_observations(name):
    found, observations = entry(name), read(f"{name}.cpu.observations.jsonl")
    made = judge(found, observations, found.study("cpu").is_as_published)
    assert [told(row) for row in read(f"{name}.cpu.jsonl")] == [told(row) for row in made]


def told(row):
    numbers = ("measured", "p", "p_against")
    rounded = {key: f"{row[key]:.6g}" for key in numbers if row.get(key) is not None}
    words = ("kind", "claim", "condition", "method", "measure", "n", "wins", "verdict")
    return {key: row.get(key) for key in words} | rounded


@pytest.mark.parametrize("name", COMMITTED)
def test_pages_show_the_verdicts(name):
    text = (FOLDER / f"{name}.cpu.md").read_text()
    for row in read(f"{name}.cpu.jsonl"):
        if row["kind"] == "claim":
            assert any(row["claim"] in line and line.endswith(f"| {row['verdict']} |") for line in text.splitlines())


def test_every_result_is_of_an_entry():
    assert set(COMMITTED) <= set(ENTRIES)
