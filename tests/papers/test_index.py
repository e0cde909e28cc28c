import json
import re

from papers.catalog import EXPERIMENTS
from papers.index import HERE, claim_lines, find_rows, index

LINK = re.compile(r"\]\(([^)]+)\)")


def test_the_readme_is_that_of_the_committed_rows():
    assert (HERE / "README.md").read_text() == index(), "python -m papers.index writes it anew"


def test_links_lead_somewhere():
    for page in ("README.md", "RULES.md"):
        targets = LINK.findall((HERE / page).read_text())
        assert targets and not [target for target in targets if not (HERE / target).exists()]


def test_the_index_of_an_empty_folder_has_everything_open(tmp_path):
    page = index(tmp_path)
    assert "## Not measured" in page and "(layerwise/results/" not in page
    assert all(f"| {name} |" in page for name in EXPERIMENTS)


def test_published_settings_come_before_reduced_ones(tmp_path):
    found = EXPERIMENTS["frozen-fig-7"]
    assert find_rows(found, tmp_path) is None
    for preset in ("cpu", "paper"):
        path = tmp_path / f"frozen-fig-7.{preset}.jsonl"
        path.write_text(json.dumps({"kind": "claim", "preset": preset}))
        assert find_rows(found, tmp_path) == path


def test_parts_stand_in_the_line_of_their_claim():
    rows = [
        {"kind": "part", "claim": "a is close", "measured": 0.25, "n": 5, "verdict": "holds"},
        {"kind": "part", "claim": "beats all", "verdict": "not decided"},
        {"kind": "claim", "claim": "one or the other", "verdict": "holds"},
    ]
    assert claim_lines(rows) == [["one or the other", "a is close: 0.25, n=5", "holds"]]


def test_comparisons_stand_in_the_line_of_their_claim():
    rows = [
        {"kind": "number", "verdict": "agrees"},
        {"kind": "comparison", "claim": "a > b", "measured": 1.5, "wins": 4, "n": 5},
        {"kind": "comparison", "claim": "a > c", "wins": 0, "n": 0},
        {"kind": "claim", "claim": "a is best", "verdict": "not decided"},
        {"kind": "claim", "claim": "d is near zero", "measured": 0.0123, "n": 3, "verdict": "holds"},
    ]
    assert claim_lines(rows) == [
        ["a is best", "a > b: +1.5 (4 of 5); a > c: +nan (0 of 0)", "not decided"],
        ["d is near zero", "0.0123, n=3", "holds"],
    ]
