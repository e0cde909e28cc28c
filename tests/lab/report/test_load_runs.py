"""A folder of runs, sorted into groups; what is not whole is told."""

import pytest

from rekindle.errors import RekindleError
from rekindle.lab.report.load_runs import last_words, read_runs
from rekindle.lab.report.runs_page import sections_of
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.pages.page import Rows
from tests.lab.report.made_up import REASON, items, made_up, words


def test_other_data_and_other_rates_are_groups_of_their_own(tmp_path):
    made_up(tmp_path, {"none": [0.5, 0.6]})
    made_up(tmp_path, {"none": [0.7]}, fields={"data": "mnist1d"})
    made_up(tmp_path, {"none": [0.8]}, fields={"optimizer": "sgd:lr=0.1"})
    found = read_runs(tmp_path)
    titles = {group.title for group in found.groups}
    assert titles == {
        "warm_start, digits, mlp, optimizer adam:lr=1e-3",
        "warm_start, mnist1d, mlp, optimizer adam:lr=1e-3",
        "warm_start, digits, mlp, optimizer sgd:lr=0.1",
    }
    assert [section.title[:2] for section in sections_of(found)].count("2.") >= 2
    [table] = [item for item in items(found, Rows) if item.columns[0] == "number"]
    assert [row[3] for row in table.rows] == pytest.approx(
        [100 * (sum(g.finals("none")) / len(g.finals("none"))) for g in found.groups]
    )


def test_a_division_for_each_seed_is_no_setting(tmp_path):
    for seed in range(3):
        run = Run(data=f"digits:division={seed}", seed=seed)
        store = Store(tmp_path)
        store.finish(store.claim(run), run, [{"stage": 0, "epoch": 1, "accuracy": 0.5}])
    [group] = read_runs(tmp_path).groups
    assert len(group.finals("none")) == 3 and "divided by seed" in group.title


def test_runs_that_differ_in_metrics_alone_are_kept_apart(tmp_path):
    made_up(tmp_path, {"none": [0.5]})
    made_up(tmp_path, {"none": [0.5]}, fields={"metrics": ("dfi",)})
    assert len(read_runs(tmp_path).groups) == 2


def test_a_loss_is_better_when_lower(tmp_path):
    made_up(tmp_path, {"none": [0.5]}, extra={"loss": 2.0})
    made_up(tmp_path, {"fire": [0.4]}, extra={"loss": 1.0})
    assert read_runs(tmp_path).groups[0].methods == ["none", "fire"]
    assert read_runs(tmp_path, measure="loss").groups[0].methods == ["fire", "none"]


def test_what_is_torn_or_not_finite_is_left_out_and_told(tmp_path):
    made_up(tmp_path, {"none": [0.5, 0.6, 0.7]})
    made_up(tmp_path, {"fire": [float("nan")]})
    torn, broken = [
        path for path in sorted(tmp_path.iterdir()) if '"methods": "none"' in (path / "run.json").read_text()
    ][:2]
    (torn / "rows.jsonl").write_text("{")
    (broken / "run.json").write_text('{"run"')
    found = read_runs(tmp_path)
    told = words(found)
    for note in (
        f"{torn.name}/rows.jsonl: 1 bytes instead of",
        f"{broken.name}: run.json is broken",
        "no finite accuracy",
    ):
        assert note in told
    assert len(found.groups[0].finals("none")) == 1 and "Only none was run" in told


def test_errors_say_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, told in ("nowhere", "does not exist"), ("file", "is a file"), ("empty", "holds no run"):
        with pytest.raises(RekindleError, match=told) as error:
            read_runs(tmp_path / name)
        assert "rekindle sweep" in error.value.expected and error.value.fix
    made_up(tmp_path / "runs", {"none": [0.5]})
    with pytest.raises(RekindleError, match="accuracy.*\n.*'speed'"):
        read_runs(tmp_path / "runs", measure="speed")
    with pytest.raises(RekindleError, match="among the methods: none"):
        read_runs(tmp_path / "runs", baseline="fire")


def test_a_folder_of_failures_says_why(tmp_path):
    store, run = Store(tmp_path), Run()
    store.fail(store.claim(run), run, REASON)
    with pytest.raises(RekindleError, match="1 of them failed.*MemoryError: too"):
        read_runs(tmp_path)


def test_last_words_of_an_error_in_three_parts():
    text = "Traceback:\n  File 'x'\n    f()\nmine.TrainingError: expected: a finite loss\ngot: nan\nwhat to do: less\n"
    assert last_words(text) == "mine.TrainingError: expected: a finite loss got: nan what to do: less"
    assert last_words("") == ""


def test_settings_that_all_groups_have_are_not_in_their_titles(tmp_path):
    long = "warm_start:fraction=0.2,before=2,after="
    for after in (2, 3):
        made_up(tmp_path, {"none": [0.5]}, fields={"protocol": f"{long}{after}", "model": "mlp:hidden=8|8"})
    titles = [group.title for group in read_runs(tmp_path).groups]
    assert titles == ["warm_start:after=2, digits, mlp:hidden=8|8", "warm_start:after=3, digits, mlp:hidden=8|8"]
