"""Pages and the list of experiments, from hand-made findings."""

from papers.experiment import Experiment, Paper, Study
from papers.markdown import claim_table, listing, number_table, page

SMALL = Experiment(
    "small-table-1",
    Paper("small", "Small (A)", "A small paper"),
    "Table 1",
    "Small is enough.",
    notes=("One.", "Two."),
    cpu_study=Study(minutes=2, reduced="everything"),
)
NUMBER = {
    "kind": "number",
    "condition": "a|b",
    "method": "fire",
    "measure": "accuracy",
    "published": 12.5,
    "published_deviation": None,
    "measured": 12.3456,
    "deviation": 0.5,
    "n": 5,
    "low": 11.0,
    "high": 13.0,
    "verdict": "agrees",
}
COMPARISON = {
    "kind": "comparison",
    "claim": "fire > none",
    "measure": "accuracy",
    "n": 5,
    "wins": 5,
    "p": 1 / 32,
    "p_against": 1.0,
    "measured": 1.5,
    "deviation": 0.25,
    "verdict": "holds",
}
CLAIM = {"kind": "claim", "claim": "fire is better", "verdict": "holds"}


def test_a_page_from_top_to_bottom():
    parts = page(SMALL, "cpu", SMALL.cpu_study, [NUMBER, COMPARISON, CLAIM]).split("\n\n")
    assert parts[0] == "# small-table-1"
    assert parts[1] == "Small (A), Table 1. Small is enough."
    assert "reduced: everything" in parts[2] and "`rekindle reproduce small-table-1 --preset cpu`" in parts[2]
    assert parts[3] == number_table([NUMBER]) and parts[4] == claim_table([COMPARISON, CLAIM])
    assert parts[5] == "- One.\n- Two.\n"


def test_a_page_without_findings_has_no_tables():
    assert "|" not in page(SMALL, "cpu", SMALL.cpu_study, [])


def test_numbers_side_by_side():
    assert number_table([NUMBER]).splitlines()[2] == (
        r"| a\|b | fire | accuracy | 12.5 | 12.35 ± 0.5 | 5 | 11 to 13 | agrees |"
    )
    missing = {**NUMBER, "published": None, "measured": None, "low": None, "n": 0, "verdict": "not decided"}
    assert number_table([missing]).splitlines()[2].endswith("| - | - | 0 | - | not decided |")


def test_claims_are_bold_and_comparisons_are_not():
    comparison, claim = claim_table([COMPARISON, CLAIM]).splitlines()[2:]
    assert comparison == "| fire > none | accuracy | 1.5 ± 0.25 | 5 | 5 | 0.0312 | 1 | holds |"
    assert claim == "| **fire is better** |  | - |  |  |  |  | holds |"


def test_the_list_says_what_an_experiment_needs():
    waiting = Experiment("later", SMALL.paper, "Fig. 1", "Later.", waits_for="its data")
    [(head, claim), (other, why)] = listing([SMALL, waiting])
    assert (
        head.split() == ["small-table-1", "2", "min", "no", "data"] and claim == "Small (A), Table 1. Small is enough."
    )
    assert other.endswith("cannot be run yet") and why.endswith("Later. Waits for its data.")
