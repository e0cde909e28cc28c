"""An entry from its runs to its page: small ones, with the engine of this process."""

import json
import shutil
from dataclasses import replace

import pytest

from rekindle.bench import work
from rekindle.bench.reproduce import making
from rekindle.bench.reproduce.catalogue import ENTRIES
from rekindle.bench.reproduce.entry import Entry, Measure, Published, Study, cells
from rekindle.bench.reproduce.making import ReproduceError, judge, judge_again, make, study_of
from rekindle.bench.reproduce.reading import value
from rekindle.bench.reproduce.rules import Larger, Numbers
from rekindle.cli import main

pytest.importorskip("scipy")
BASE = {
    "protocol": "rounds:blocks=3,repeats=1,steps=3",
    "model": "mlp_synthetic:init=glorot",
    "optimizer": "sgd:lr=0.05",
}
TINY = Entry(
    "tiny-table-1",
    "L",
    "Table 1",
    "A small one.",
    published={("1", "BL"): Published(12.5, 50.0, 3)},
    measures=(Measure(scale=100),),
    paper_study=Study(
        cells(BASE, {"1": {"data": "synthetic:train=16,test=64"}}, {"BL": "none", "WELSR": "welsr"}), seeds=2, minutes=1
    ),
    rules=(Numbers(), Larger("WELSR is better", "WELSR", ("BL",))),
)


class Here:
    """Runs in this process; stops after some runs as a user would with Ctrl-C."""

    def __init__(self, stop_after=99):
        self.left, self.ran = stop_after, 0

    def run_all(self, store, runs, *, function, listen):
        for run in runs:
            if self.left == 0:
                return False
            listen(work.carry_out(store, run, function, lambda event: None))
            self.left, self.ran = self.left - 1, self.ran + 1
        return True


def test_published_and_measured_side_by_side(tmp_path):
    made = make(TINY, "cpu", tmp_path, Here())
    number = made.findings[0]
    assert (number["method"], number["published"], number["n"], number["verdict"]) == ("BL", 12.5, 2, "agrees")
    assert "| 1 | BL | accuracy | 12.5 ± 50 |" in made.page and "WELSR > BL" in made.page
    rows = [json.loads(line) for line in (tmp_path / "tiny-table-1.cpu.jsonl").read_text().splitlines()]
    assert [row["verdict"] for row in rows] == [row["verdict"] for row in made.findings]
    assert {row["entry"] for row in rows} == {"tiny-table-1"} and "torch" in rows[0]["versions"]
    assert (tmp_path / "tiny-table-1.cpu.md").read_text() == made.page
    assert len((tmp_path / "tiny-table-1.cpu.observations.jsonl").read_text().splitlines()) == 4


def test_stopped_it_goes_on(tmp_path):
    first = make(TINY, "cpu", tmp_path, Here(stop_after=1))
    assert first.summary.interrupted and len(first.observations) == 1
    engine = Here()
    second = make(TINY, "cpu", tmp_path, engine)
    assert engine.ran == 3 and len(second.observations) == 4
    again = Here()
    assert make(TINY, "cpu", tmp_path, again).findings == second.findings
    assert again.ran == 0


def test_results_are_not_replaced_by_fewer(tmp_path):
    make(TINY, "cpu", tmp_path, Here())
    before = {path.name: path.read_text() for path in tmp_path.glob("tiny-*")}
    shutil.rmtree(tmp_path / "runs")
    stopped = make(TINY, "cpu", tmp_path, Here(stop_after=3))
    assert stopped.files == () and len(stopped.observations) == 3
    assert {path.name: path.read_text() for path in tmp_path.glob("tiny-*")} == before
    assert len(make(TINY, "cpu", tmp_path, Here(), seeds=1).files) == 3  # fewer by wish


def test_without_any_result_there_is_no_page(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "find", lambda function: _fail)
    assert make(TINY, "cpu", tmp_path, Here()).files == ()
    assert not list(tmp_path.glob("tiny-*"))


def _fail(*args, **options):
    raise RuntimeError("as planned")


def test_seeds_can_be_chosen(tmp_path):
    assert len(make(TINY, "paper", tmp_path, Here(), seeds=1).observations) == 2


def test_numbers_of_a_reduced_study_are_not_compared():
    rows = [{"condition": "1", "method": "BL", "seed": seed, "accuracy": 99.0 + seed} for seed in range(3)]
    assert judge(TINY, rows)[0]["verdict"] == "differs"
    assert judge(TINY, rows, comparable=False)[0]["verdict"] == making.REDUCED


def test_a_computed_entry_trains_nothing(tmp_path):
    made = make(ENTRIES["frozen-eigenvalues"], "cpu", tmp_path, Here(stop_after=0), seeds=3)
    assert made.summary is None
    assert {row["verdict"] for row in made.findings if row["kind"] == "claim"} == {"holds"}


def test_judged_again_nothing_changes_but_rules_and_notes(tmp_path):
    made = make(TINY, "cpu", tmp_path, Here())
    before = {path: path.read_text() for path in made.files}
    again = judge_again(TINY, "cpu", tmp_path)
    assert {path: path.read_text() for path in again.files} == before and again.summary is None
    noted = replace(TINY, notes=("Written later.",), rules=TINY.rules[:1])
    judge_again(noted, "cpu", tmp_path)
    rows, observations, page = (path.read_text() for path in made.files)
    assert page.endswith("- Written later.\n") and "WELSR is better" not in rows
    assert observations == before[made.files[1]]


def test_judged_again_the_versions_are_those_of_the_runs(tmp_path):
    path = make(TINY, "cpu", tmp_path, Here()).files[0]
    path.write_text(path.read_text().replace('"torch": "', '"torch": "1.'))
    judge_again(TINY, "cpu", tmp_path)
    assert '"torch": "1.' in path.read_text()


def test_judged_again_with_the_seeds_that_it_was_made_with(tmp_path):
    made = make(TINY, "cpu", tmp_path, Here(), seeds=3)
    with pytest.raises(ReproduceError, match="2 of 6 of others"):
        judge_again(TINY, "cpu", tmp_path)
    assert judge_again(TINY, "cpu", tmp_path, seeds=3).page == made.page


def test_observations_of_other_settings_are_not_judged(tmp_path):
    files = make(TINY, "cpu", tmp_path, Here()).files
    before = [path.read_text() for path in files]
    longer = {**BASE, "protocol": "rounds:blocks=3,repeats=1,steps=4", "data": "synthetic:train=16,test=64"}
    changed = replace(TINY, paper_study=Study(cells(longer, {"1": {}}, {"BL": "none", "WELSR": "welsr"}), seeds=2))
    with pytest.raises(ReproduceError, match="4 of 4 of others"):
        judge_again(changed, "cpu", tmp_path)
    assert [path.read_text() for path in files] == before
    with pytest.raises(ReproduceError, match="make them first"):
        judge_again(TINY, "paper", tmp_path)


def test_missing_data_are_told_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("REKINDLE_DATA", str(tmp_path))
    with pytest.raises(ReproduceError, match="mnist") as error:
        study_of(ENTRIES["soft-rescaling-table-1-mnist"], "cpu")
    assert "REKINDLE_DATA" in error.value.fix and "rk.data.download('mnist')" in error.value.fix


def test_what_waits_is_told():
    with pytest.raises(ReproduceError, match="lm_continual"):
        study_of(ENTRIES["fire-fig-3"], "paper")


ROWS = [
    {"stage": 0, "event": "end", "accuracy": 0.5, "epoch": 2},
    {"stage": 1, "event": "boundary", "accuracy": 0.2, "accuracy_before": 0.6, "epoch": 0},
    {"stage": 1, "event": "epoch", "accuracy": 0.9, "epoch": 1},
    {"stage": 1, "event": "end", "accuracy": 0.7, "epoch": 2},
]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        *(("last", 0.7), ("best", 0.9), ("rise", 0.4), ("boundary", 0.2)),
        *(("gap", -0.4), ("first", 0.5), ("ends", 0.6), ("late", 0.7), ("trend", 0.2)),
    ],
)
def test_what_is_read_of_a_run(at, expected):
    assert value(ROWS, Measure(at=at)) == pytest.approx(expected)
    assert value(ROWS, Measure(at=at, scale=100)) == pytest.approx(100 * expected)
    assert value(ROWS, Measure(column="metric.other", at=at)) is None


def test_late_is_the_last_quarter():
    rows = [{"stage": s, "event": "end", "accuracy": float(s)} for s in range(8)]
    assert value(rows, Measure(at="late")) == 6.5
    assert value(rows, Measure(at="trend")) == 6.5 - 0.5


def test_of_one_stage_there_is_no_rise():
    assert value(ROWS[:1], Measure(at="rise")) is None


# --- the verb ---


def test_the_list_fits_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(ENTRIES)
    assert max(len(line) for line in lines) <= 80
    [line] = [line for line in lines if line.startswith("fire-table-1 ")]
    assert line.endswith("no data") and "min" in line
    [line] = [line for line in lines if line.startswith("fire-fig-3 ")]
    assert "cannot be run yet" in line


def test_end_to_end_with_worker_processes(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(ENTRIES, TINY.name, TINY)
    words = ["reproduce", TINY.name, "--out", str(tmp_path), "--workers", "1"]
    assert main([*words, "--seeds", "1"]) == 0
    assert "2 finished" in capsys.readouterr().out
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "2 finished, 2 finished before" in said and "12.5 ± 50" in said and "agrees" in said
    assert main([*words, "--judge"]) == 0
    said = capsys.readouterr().out
    assert "12.5 ± 50" in said and "Written: " in said and "finished" not in said


def test_mistakes_are_three_lines(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("REKINDLE_DATA", str(tmp_path))
    assert main(["reproduce", "nothing"]) == 2
    assert main(["reproduce", "soft-rescaling-table-1-mnist"]) == 2
    said = capsys.readouterr().err
    assert "see `rekindle reproduce --list`" in said and "what to do: set REKINDLE_DATA" in said
