import shutil
from pathlib import Path

import pytest

import papers
from papers.catalog import EXPERIMENTS
from rekindle.cli import main, reproduce
from rekindle.errors import RekindleError
from tests.papers.tiny import TINY

pytest.importorskip("scipy")


def test_the_list_fits_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(EXPERIMENTS)
    assert max(len(line) for line in lines) <= 80
    [line] = [line for line in lines if line.startswith("fire-table-1 ")]
    assert line.endswith("no data") and "min" in line
    [line] = [line for line in lines if line.startswith("fire-fig-4 ")]
    assert "cannot be run yet" in line


def test_end_to_end_with_worker_processes(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, TINY.name, TINY)
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


def test_an_old_name_is_answered_with_the_new_one(capsys):
    assert main(["reproduce", "elsewhere-permuted-cbp"]) == 2
    assert "what to do: rekindle reproduce other-permuted-cbp" in capsys.readouterr().err


# --- where the experiments are ---


def test_the_clone_comes_first_then_the_working_folder(tmp_path):
    for name in ("clone", "working"):
        (tmp_path / name / "papers").mkdir(parents=True)
        (tmp_path / name / "papers" / "catalog.py").touch()
    clone, working, nowhere = (tmp_path / name for name in ("clone", "working", "nowhere"))
    assert reproduce.find_papers(clone, working) == clone / "papers"
    assert reproduce.find_papers(nowhere, working) == working / "papers"
    (working / "papers" / "catalog.py").unlink()  # some other folder of that name
    with pytest.raises(RekindleError):
        reproduce.find_papers(nowhere, working)


def test_this_checkout_is_a_clone():
    assert reproduce.find_papers(reproduce.CLONE) == Path(papers.__file__).parent


def test_an_installation_without_papers_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "CLONE", tmp_path / "site-packages")
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--list"]) == 2
    expected, got, fix = capsys.readouterr().err.splitlines()
    assert expected.startswith("expected: a clone of rekindle's repository") and expected.endswith("folder papers")
    assert got.startswith("got: an installation without it") and str(tmp_path) in got
    assert fix.startswith("what to do: clone the repository")


def test_judge_finds_and_rewrites_the_committed_results(tmp_path, capsys):
    committed = Path(papers.__file__).parent / "frozen" / "results"
    copy = tmp_path / "papers" / "frozen" / "results"
    copy.mkdir(parents=True)
    for path in committed.glob("frozen-eigenvalues.cpu.*"):
        shutil.copy(path, copy)
    page = copy / "frozen-eigenvalues.cpu.md"
    page.write_text("old")
    assert main(["reproduce", "frozen-eigenvalues", "--judge", "--out", str(tmp_path / "papers")]) == 0
    assert page.read_text() == (committed / page.name).read_text()
    assert f"Written: {copy}" in capsys.readouterr().out
