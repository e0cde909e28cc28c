"""`rekindle sweep`, with runs that cost nothing."""

import pytest

from rekindle.cli import main
from rekindle.lab.runs.store import Store
from rekindle.lab.runs.sweep import read_sweep

SPEC = "data: digits\ngrid: {methods: [none, fresh]}\nseeds: 2\n"


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rekindle.lab.runs.execute.TRAIN_RUN", "tests.lab.runs.tiny:execute")
    path = tmp_path / "mine.yaml"
    path.write_text(SPEC)
    return path


def test_a_sweep_runs_once_and_then_has_nothing_to_do(spec, capsys):
    assert main(["sweep", str(spec), "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "runs/mine: 4 finished" in said and "[4/4] finished: methods=" in said
    assert len(Store("runs/mine").rows()) == 12
    assert main(["sweep", str(spec)]) == 0
    assert "runs/mine: 4 finished before" in capsys.readouterr().out


def test_a_failure_is_told_and_waits_for_retry(spec, capsys, monkeypatch):
    monkeypatch.setattr("rekindle.lab.runs.execute.TRAIN_RUN", "tests.cli.test_sweep:fail")
    for words, told in ([], "2 failed"), ([], "2 failed before"), (["--retry"], "2 failed"):
        spec.write_text("seeds: 2")
        with pytest.raises(SystemExit) as stop:
            main(["sweep", str(spec), "--workers", "1", *words])
        assert stop.value.code == 1
        said = capsys.readouterr().out
        assert f"runs/mine: {told}" in said and "ZeroDivisionError: on purpose" in said and "failed.json" in said


def fail(run, folder, *, progress=None, bar=False):
    raise ZeroDivisionError("on purpose")


def test_dry_run_shows_and_does_nothing(spec, capsys, tmp_path):
    assert main(["sweep", str(spec), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert all(run.key in said for run in read_sweep(spec).expand())
    assert "4 runs, 4 of them open" in said and not (tmp_path / "runs").exists()


def test_mistakes_are_three_lines(spec, capsys):
    spec.write_text("data: digits\ngrid: {metods: [fire]}")
    assert main(["sweep", str(spec)]) == 2
    said = capsys.readouterr().err
    assert f"got: {spec}, line 2: grid.metods" in said and "what to do: use one of" in said


def test_tensorboard_events_are_written(spec):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install 'rekindle[tensorboard]'")
    spec.write_text("seed: 1")
    assert main(["sweep", str(spec), "--tensorboard"]) == 0
    [run] = read_sweep(spec).expand()
    assert list((Store("runs/mine").path(run.key) / "tensorboard").glob("events.*"))
