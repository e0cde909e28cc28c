"""`rekindle run`, with runs that cost nothing."""

import json

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


def test_one_run(spec, capsys):
    spec.write_text("data: digits\nseed: 7")
    for _ in range(2):
        assert main(["run", str(spec), "--out", "here"]) == 0
        assert "3 rows in here/" in capsys.readouterr().out
    [key] = Store("here").keys()
    assert json.loads((Store("here").path(key) / "run.json").read_text())["run"]["seed"] == 7


def test_a_run_of_another_process_is_left_alone(spec, capsys):
    spec.write_text("seed: 7")
    [run] = read_sweep(spec).expand()
    claim = Store("here").claim(run)
    assert main(["run", str(spec), "--out", "here"]) == 0
    assert "Another process" in capsys.readouterr().out and Store("here").state(run.key) == "open"
    claim.release()


def test_several_runs_are_a_sweep(spec, capsys):
    assert main(["run", str(spec)]) == 2
    assert "rekindle sweep" in capsys.readouterr().err


def test_a_run_that_fails(spec, capsys, monkeypatch):
    monkeypatch.setattr("rekindle.lab.runs.execute.TRAIN_RUN", "tests.cli.test_sweep:fail")
    spec.write_text("seed: 1")
    with pytest.raises(SystemExit) as stop:
        main(["run", str(spec)])
    assert stop.value.code == 1
    said = capsys.readouterr().out
    assert "Traceback" in said and "--retry" in said
