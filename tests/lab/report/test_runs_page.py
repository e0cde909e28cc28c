"""The page of a real small sweep on digits, in a real browser; and what it says about folders that are not whole."""

import json
import shutil

import pytest

from rekindle.errors import RekindleError
from rekindle.lab.report.boundary_charts import boundaries
from rekindle.lab.report.curves import course, starts
from rekindle.lab.report.encodings import colors
from rekindle.lab.report.load_runs import last_words, read_runs
from rekindle.lab.report.runs_page import sections_of, write_runs_page
from rekindle.lab.report.summary import summarize
from rekindle.lab.runs import execute
from rekindle.lab.runs.spec import Run
from rekindle.lab.runs.store import Store
from rekindle.lab.runs.sweep import Sweep
from rekindle.pages.page import Chart, Rows, Text
from rekindle.statistics.intervals import bootstrap_interval, spread
from rekindle.statistics.paired_tests import last_rows
from tests.pages.browser import opened

PATH = "warm_start:fraction=0.2,before=2,after=2"
FIXED = {"protocol": PATH, "data": "digits", "batch_size": 64, "metrics": ["dfi", "sfe"]}
REASON = "Traceback (most recent call last):\n  File 'x'\nMemoryError: too <big>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two methods by three seeds, one run that failed and one that was begun."""
    store = Store(tmp_path_factory.mktemp("report") / "digits_sweep")
    for run in Sweep(fixed=FIXED, grid={"methods": ["none", "fire"]}, seeds=(0, 1, 2)).expand():
        assert execute.execute_run(store, run, execute.TRAIN_RUN, lambda event: None).kind == "finished"
    failed = Run.from_dict({**FIXED, "methods": "fresh"})
    store.fail(store.claim(failed), failed, REASON)
    store.claim(Run.from_dict({**FIXED, "methods": "fresh", "seed": 1})).release()
    return store.folder


@pytest.fixture(scope="module")
def found(folder):
    return read_runs(folder)


def items(found, kind):
    return [item for section in sections_of(found) for item in section.content if isinstance(item, kind)]


def made_up(folder, numbers, *, fields=None, extra=None):
    """Write finished runs with one row each: method -> a number for each seed."""
    store = Store(folder)
    for method, values in numbers.items():
        for seed, value in enumerate(values):
            run = Run(methods=method, seed=seed, **(fields or {}))
            row = {"stage": 0, "epoch": 1, "event": "end", "accuracy": value, **(extra or {})}
            assert store.finish(store.claim(run), run, [row])
    return store.folder


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


# --- the numbers ---


def test_the_summary_is_that_of_the_rows(folder, found):
    [table] = [item for item in items(found, Rows) if "accuracy (%)" in item.columns]
    for row in table.rows:
        last = [r for r in last_rows(Store(folder).rows()) if r["methods"] == row[0]]
        finals = [r["accuracy"] for r in sorted(last, key=lambda r: r["seed"])]
        assert row[1:4] == pytest.approx([100 * spread(finals).mean, 100 * spread(finals).deviation, 3])
        assert row[4:6] == pytest.approx([100 * end for end in bootstrap_interval(finals)])
    means = [row[1] for row in table.rows]
    assert means == sorted(means, reverse=True) and (0, 1) in table.marked


def test_the_course_steps_at_the_boundary(found):
    [group] = found.groups
    assert starts(group.rows) == {0: 0, 1: 2}
    data = [record for record in course(group, "accuracy", starts(group.rows)) if record["method"] == "fire"]
    assert [(record["epoch"], record["moment"]) for record in data] == [
        (1, "epoch"),
        (2, "epoch"),
        (2, "before"),
        (2, "after"),
        (3, "epoch"),
        (4, "epoch"),
    ]
    [record] = [r for item in boundaries(group, "accuracy") if isinstance(item, Chart) for r in item.data][1:]
    rows = [r for r in group.rows if r["event"] == "boundary" and r["methods"] == record["method"]]
    by_hand = sum(r["accuracy"] - r["accuracy_before"] for r in rows) / 3
    assert record["change"] == pytest.approx(by_hand) and record["seeds"] == 3


def test_metrics_of_runs_that_stop_early_meet_at_the_end_of_the_stage(tmp_path):
    made_up(tmp_path, {"none": [0.5]}, extra={"epoch": 3, "metric.dfi": 1.0})
    store, run = Store(tmp_path), Run(seed=1)
    store.finish(store.claim(run), run, [{"event": "end", "stage": 0, "epoch": 7, "accuracy": 1, "metric.dfi": 2.0}])
    [group] = read_runs(tmp_path).groups
    [record] = course(group, "metric.dfi", starts(group.rows))
    assert (record["epoch"], record["mean"], record["seeds"], record["moment"]) == (7, 1.5, 2, "end")


def test_cost_is_relative_to_the_baseline(tmp_path):
    for method, seconds in ("none", 2.0), ("fire", 3.0):
        made_up(tmp_path, {method: [0.5, 0.6]}, extra={"seconds": seconds})
    [table] = [item for item in items(read_runs(tmp_path), Rows) if "relative to none" in item.columns]
    assert {row[0]: row[list(table.columns).index("relative to none")] for row in table.rows} == {
        "none": 1,
        "fire": 1.5,
    }


# --- what it says ---


def words(found):
    return "\n".join(text.words for text in items(found, Text))


def test_few_seeds_are_called_few(found):
    told = words(found)
    assert "n = 3 paired seeds, 1 pair of methods" in told and "p would be 0.25" in told
    assert "cannot be significant" in told and "6 could be" in told  # 2 / 2^6 = 0.031
    assert "significantly" not in told


def test_a_clear_winner_is_called_one(tmp_path):
    made_up(tmp_path, {"none": [0.5] * 6, "fire": [0.6, 0.61, 0.62, 0.6, 0.7, 0.65]})
    [group] = read_runs(tmp_path).groups
    told = [item.words for item in summarize(group) if isinstance(item, Text)]
    assert len(told) == 1 and "fire has the best mean" in told[0] and "significantly better than none" in told[0]
    summary, tests = (item for item in summarize(group) if isinstance(item, Rows))
    assert summary.rows[0][-2:] == [1 / 64, 1 / 64]  # one-sided, against the baseline
    assert tests.rows[0][-3:] == [2 / 64, 2 / 64, "yes"]  # two-sided


def test_the_best_mean_may_win_fewer_seeds(tmp_path):
    made_up(tmp_path, {"none": [0.5, 0.5, 0.5], "fire": [0.4, 0.4, 0.9]})
    [group] = read_runs(tmp_path).groups
    [row] = [item for item in summarize(group) if isinstance(item, Rows)][1].rows
    assert row[0] == "none" and row[1] == pytest.approx(100 * 0.2 / 3) and row[4] == "1 of 3" and row[-1] == "no"
    assert row[2] < row[1] < row[3]


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


# --- groups ---


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


def test_a_method_keeps_its_color_and_untreated_comes_first(tmp_path):
    made_up(tmp_path, {"fire": [0.5], "fresh": [0.4], "none": [0.6]})
    made_up(tmp_path, {"fire": [0.7], "none": [0.6]}, fields={"data": "mnist1d"})
    found = read_runs(tmp_path)
    assert found.results.methods == ["none", "fresh", "fire"]
    scales = [colors(group)["scale"] for group in found.groups]
    one, two = (dict(zip(scale["domain"], scale["range"], strict=True)) for scale in scales)
    assert one["none"] == two["none"] and one["fire"] == two["fire"] and len(set(one.values())) == 3
    assert list(two) == ["none", "fire"]


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


# --- folders that are not whole ---


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
