import io

import pytest
from rich.console import Console

from rekindle.cli import main
from rekindle.cli.demo import FRESH, METHODS, WARM, audits, measured, runs_of, sentences, table, train
from rekindle.statistics.paired_tests import collect

TREATED = METHODS[2]


def rows(scores):
    return [
        {"key": f"{method}{seed}", "methods": method, "seed": seed, "stage": 1, "epoch": 1, "accuracy": value}
        for method, values in scores.items()
        for seed, value in enumerate(values)
    ]


def results(warm, fresh, treated):
    scores = {WARM: warm, FRESH: fresh, TREATED: treated, METHODS[3]: fresh, METHODS[4]: fresh}
    return collect(rows(scores), setting=())


def test_the_table_by_hand():
    made = table(results([90.0, 92.0], [93.0, 93.0], [95.0, 91.0]), 2)
    cells = [list(column.cells) for column in made.columns]
    assert cells[0][:3] == ["warm, untreated", "fresh weights", TREATED.partition(":")[0]]
    assert cells[1][:3] == ["91.0 ± 1.4", "93.0 ± 0.0", "93.0 ± 2.8"]
    assert cells[2][:3] == ["", "+2.0 ± 1.4, 2/2", "+2.0 ± 4.2, 1/2"]
    assert cells[3][:3] == ["-2.0 ± 1.4, 0/2", "", "+0.0 ± 2.8, 1/2"]


def test_the_table_is_whole_on_a_narrow_terminal():
    made = table(results([70.0, *[99.0] * 9], [80.0, *[99.5] * 9], [100.0] * 10), 10)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(made)
    told = console.export_text()
    assert "…" not in told and "10/10" in told


LOW, HIGH = [90 + n / 10 for n in range(12)], [95 + n / 10 for n in range(12)]


@pytest.mark.parametrize(
    ("warm", "fresh", "treated", "said"),
    [
        (LOW, HIGH, [x + 3 for x in HIGH], ["5.0 points below fresh", f"above fresh weights too: {TREATED}"]),
        (HIGH, LOW, LOW, ["5.0 points above fresh", "No treatment is clearly above it"]),
        (LOW, LOW[::-1], LOW[::-1], ["cannot be told apart", "none is clearly above fresh weights"]),
    ],
)
def test_sentences_follow_the_numbers(warm, fresh, treated, said):
    found = sentences(results(warm, fresh, treated))
    assert len(found) == 2
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


def test_one_seed_has_no_spread(capsys):
    assert main(["demo", "--seeds", "1"]) == 2
    assert "at least 2 seeds" in capsys.readouterr().err


def test_the_audit_finds_what_the_first_stage_did_and_the_remedy_helps():
    said = audits(runs_of(1, 0.5)[0])
    before, after = said.splitlines()
    assert not before.endswith("nothing found.")
    assert after.endswith("nothing found.")


@pytest.mark.slow
def test_demo_runs(capsys, tmp_path):
    pytest.importorskip("vl_convert")
    assert main(["demo", "--seeds", "2", "--out", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    assert "2 seeds" in said and "fire" in said and "fresh weights" in said
    assert (tmp_path / "demo" / "report.html").exists()


@pytest.mark.slow
def test_warm_starting_hurts_and_fresh_weights_help(tmp_path):
    """The claim of the demo on seeds that it shows: above the noise, in at least four of five."""
    pytest.importorskip("vl_convert")
    runs = runs_of(5, 0.5)
    train(runs, tmp_path)
    warm, fresh = measured(runs, tmp_path).pairs(WARM, FRESH)
    gaps = [b - a for a, b in zip(warm, fresh, strict=True)]
    assert sum(gaps) / 5 > 1
    assert sum(gap > 0 for gap in gaps) >= 4
