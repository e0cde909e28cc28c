"""An experiment from its runs to its page: small ones, with an engine of this process."""

import json
import shutil
from dataclasses import replace

import pytest

from papers.catalog import EXPERIMENTS
from papers.experiment import Study, cells
from papers.pipeline import (
    GATED,
    REDUCED,
    ReproduceError,
    judge,
    judge_again,
    list_runs,
    results_folder,
    run_experiment,
    study_with_data,
)
from papers.rules import Within
from rekindle.lab.runs import execute
from tests.papers.tiny import BASE, TINY

pytest.importorskip("scipy")


class InProcess:
    """An engine that runs in this process; it stops after some runs, as with Ctrl-C."""

    def __init__(self, stop_after=99):
        self.left, self.ran = stop_after, 0

    def run_all(self, store, runs, *, function, listen):
        for run in runs:
            if self.left == 0:
                return False
            listen(execute.execute_run(store, run, function, lambda event: None))
            self.left, self.ran = self.left - 1, self.ran + 1
        return True


def test_published_and_measured_side_by_side(tmp_path):
    result = run_experiment(TINY, "cpu", tmp_path, InProcess())
    number = result.findings[0]
    assert (number["method"], number["published"], number["n"], number["verdict"]) == ("BL", 12.5, 2, "agrees")
    assert "| 1 | BL | accuracy | 12.5 ± 50 |" in result.page and "WELSR > BL" in result.page
    rows = [json.loads(line) for line in (tmp_path / "tiny-table-1.cpu.jsonl").read_text().splitlines()]
    assert [row["verdict"] for row in rows] == [row["verdict"] for row in result.findings]
    assert {row["entry"] for row in rows} == {"tiny-table-1"} and "torch" in rows[0]["versions"]
    assert (tmp_path / "tiny-table-1.cpu.md").read_text() == result.page
    assert len((tmp_path / "tiny-table-1.cpu.observations.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(("low", "expected"), [(0.5, "holds"), (5.0, GATED)])
def test_claims_are_judged_behind_their_gates_only(low, expected):
    gated = replace(TINY, gates=(Within("gate", "BL", low=low),), published={})
    seen = [
        {"condition": "1", "method": method, "seed": seed, "accuracy": level + seed / 100}
        for method, level in (("BL", 1.0), ("WELSR", 2.0))
        for seed in range(5)
    ]
    gate, *numbers, comparison, claim = judge(gated, seen)
    assert gate["verdict"] == ("holds" if expected == "holds" else "does not hold")
    assert comparison["verdict"] == claim["verdict"] == expected
    assert [row["verdict"] for row in numbers] == ["", ""], "numbers stay"


def test_text_in_the_cache_counts_as_data(tmp_path, monkeypatch):
    monkeypatch.setenv("REKINDLE_DATA", str(tmp_path))
    text = replace(TINY, paper_study=Study(cells(BASE, {"1": {"data": "words"}}, {"BL": "none"})))
    with pytest.raises(ReproduceError, match="words") as missing:
        study_with_data(text, "paper")
    assert "rekindle data prepare" in missing.value.fix
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "train.bin").write_bytes(b"12")
    assert study_with_data(text, "paper").data() == ("words",)


def test_stopped_it_goes_on(tmp_path):
    first = run_experiment(TINY, "cpu", tmp_path, InProcess(stop_after=1))
    assert first.summary.interrupted and len(first.observations) == 1
    engine = InProcess()
    second = run_experiment(TINY, "cpu", tmp_path, engine)
    assert engine.ran == 3 and len(second.observations) == 4
    again = InProcess()
    assert run_experiment(TINY, "cpu", tmp_path, again).findings == second.findings
    assert again.ran == 0


def test_results_are_not_replaced_by_fewer(tmp_path):
    run_experiment(TINY, "cpu", tmp_path, InProcess())
    before = {path.name: path.read_text() for path in tmp_path.glob("tiny-*")}
    shutil.rmtree(tmp_path / "runs")
    stopped = run_experiment(TINY, "cpu", tmp_path, InProcess(stop_after=3))
    assert stopped.files == () and len(stopped.observations) == 3
    assert {path.name: path.read_text() for path in tmp_path.glob("tiny-*")} == before
    assert len(run_experiment(TINY, "cpu", tmp_path, InProcess(), seeds=1).files) == 3  # fewer by wish


def test_without_any_result_there_is_no_page(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "find", lambda function: _fail)
    assert run_experiment(TINY, "cpu", tmp_path, InProcess()).files == ()
    assert not list(tmp_path.glob("tiny-*"))


def _fail(*args, **options):
    raise RuntimeError("as planned")


def test_seeds_can_be_chosen(tmp_path):
    assert len(run_experiment(TINY, "paper", tmp_path, InProcess(), seeds=1).observations) == 2


def test_numbers_of_a_reduced_study_are_not_compared():
    rows = [{"condition": "1", "method": "BL", "seed": seed, "accuracy": 99.0 + seed} for seed in range(3)]
    assert judge(TINY, rows)[0]["verdict"] == "differs"
    assert judge(TINY, rows, comparable=False)[0]["verdict"] == REDUCED


def test_a_computed_experiment_trains_nothing(tmp_path):
    result = run_experiment(EXPERIMENTS["frozen-eigenvalues"], "cpu", tmp_path, InProcess(stop_after=0), seeds=3)
    assert result.summary is None
    assert {row["verdict"] for row in result.findings if row["kind"] == "claim"} == {"holds"}


def test_judged_again_nothing_changes_but_rules_and_notes(tmp_path):
    result = run_experiment(TINY, "cpu", tmp_path, InProcess())
    before = {path: path.read_text() for path in result.files}
    again = judge_again(TINY, "cpu", tmp_path)
    assert {path: path.read_text() for path in again.files} == before and again.summary is None
    noted = replace(TINY, notes=("Written later.",), rules=TINY.rules[:1])
    judge_again(noted, "cpu", tmp_path)
    rows, observations, page = (path.read_text() for path in result.files)
    assert page.endswith("- Written later.\n") and "WELSR is better" not in rows
    assert observations == before[result.files[1]]


def test_judged_again_the_versions_are_those_of_the_runs(tmp_path):
    path = run_experiment(TINY, "cpu", tmp_path, InProcess()).files[0]
    path.write_text(path.read_text().replace('"torch": "', '"torch": "1.'))
    judge_again(TINY, "cpu", tmp_path)
    assert '"torch": "1.' in path.read_text()


def test_judged_again_with_the_seeds_that_it_was_made_with(tmp_path):
    result = run_experiment(TINY, "cpu", tmp_path, InProcess(), seeds=3)
    with pytest.raises(ReproduceError, match="2 of 6 of others"):
        judge_again(TINY, "cpu", tmp_path)
    assert judge_again(TINY, "cpu", tmp_path, seeds=3).page == result.page


def test_observations_of_other_settings_are_not_judged(tmp_path):
    files = run_experiment(TINY, "cpu", tmp_path, InProcess()).files
    before = [path.read_text() for path in files]
    longer = {**BASE, "protocol": "rounds:blocks=3,repeats=1,steps=4", "data": "synthetic:train=16,test=64"}
    changed = replace(TINY, paper_study=Study(cells(longer, {"1": {}}, {"BL": "none", "WELSR": "welsr"}), seeds=2))
    with pytest.raises(ReproduceError, match="4 of 4 of others"):
        judge_again(changed, "cpu", tmp_path)
    assert [path.read_text() for path in files] == before
    with pytest.raises(ReproduceError, match="run it first"):
        judge_again(TINY, "paper", tmp_path)


def test_missing_data_raise_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("REKINDLE_DATA", str(tmp_path))
    with pytest.raises(ReproduceError, match="mnist") as error:
        study_with_data(EXPERIMENTS["soft-rescaling-table-1-mnist"], "cpu")
    assert "REKINDLE_DATA" in error.value.fix and "rk.lab.data.download('mnist')" in error.value.fix


def test_an_experiment_that_waits_says_for_what():
    with pytest.raises(ReproduceError, match="rl_midpoint"):
        study_with_data(EXPERIMENTS["fire-fig-4"], "paper")


def test_results_are_in_the_folder_of_the_paper_where_there_is_one(tmp_path):
    assert results_folder(TINY, tmp_path) == tmp_path
    (tmp_path / "small").mkdir()
    assert results_folder(TINY, tmp_path) == tmp_path / "small" / "results"
    result = run_experiment(TINY, "cpu", tmp_path, InProcess())
    assert {path.parent for path in result.files} == {tmp_path / "small" / "results"}
    assert len(list((tmp_path / "runs").iterdir())) == 4
    assert judge_again(TINY, "cpu", tmp_path).page == result.page


def test_runs_are_listed_once_and_seed_by_seed():
    twice = replace(TINY.paper_study, cells=TINY.paper_study.cells * 2)
    runs = list_runs(twice, seeds=3, device="meta")
    assert [run.seed for run in runs] == [0, 0, 1, 1, 2, 2] and {run.device for run in runs} == {"meta"}
