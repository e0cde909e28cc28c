"""From an experiment to its page: run what is missing, read the rows, judge by the rules, write rows and page."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.experiment import Experiment, Preset, Row, Study
from papers.extract import observe
from papers.markdown import page
from papers.rules import HOLDS
from rekindle.errors import RekindleError
from rekindle.lab.data import cache
from rekindle.lab.runs import Engine, Listen, Run, Store, Summary, read_lines, run_sweep, to_lines, versions

REDUCED = "not compared: reduced"
GATED = "not judged: a gate does not hold"


class ReproduceError(RekindleError):
    """An experiment cannot be run or judged."""


@dataclass(frozen=True)
class ExperimentResult:
    """What came of an experiment.

    Args:
        findings: Rows with verdicts.
        observations: One for each condition, method and seed.
        page: The Markdown page.
        files: What was written. It is empty if runs are missing and the folder has more results, or there are none.
        summary: What came of the runs; None where nothing was trained.
    """

    findings: list[Row]
    observations: list[Row]
    page: str
    files: tuple[Path, ...]
    summary: Summary | None


def find_study(experiment: Experiment, preset: Preset) -> Study:
    """Return what to run.

    Raises:
        ReproduceError: The experiment waits for something.
    """
    study = experiment.study(preset)
    if study is None or experiment.waits_for:
        raise ReproduceError(
            expected=f"an experiment that can be run with preset {preset!r}",
            got=f"{experiment.name}, which waits for: {experiment.waits_for or 'such a preset'}",
            fix="see `rekindle reproduce --list` for those that can",
        )
    return study


def study_with_data(experiment: Experiment, preset: Preset) -> Study:
    """Return what to run, after a check that it can be run and that its data are there.

    Raises:
        ReproduceError: The experiment waits for something, or data are missing.
    """
    study = find_study(experiment, preset)
    missing = [name for name in study.data() if not _is_there(name)]
    if missing:
        first = missing[0]
        raise ReproduceError(
            expected=f"the data sets {', '.join(missing)} in {cache()}",
            got="no such files",
            fix=f"set REKINDLE_DATA to a folder that has {first}/train.npz and {first}/test.npz, or fetch with "
            f"`python -c \"import rekindle as rk; rk.lab.data.download('{first}')\"` "
            f"(needs network and pip install 'rekindle[hub]'); a text has {first}/train.bin and {first}/val.bin, which "
            f"`rekindle data prepare {first} FILE` writes",
        )
    return study


def _is_there(name: str) -> bool:
    """Tell whether the cache has a data set: images, or the tokens of a text."""
    return any((cache() / name / file).is_file() for file in ("train.npz", "train.bin"))


def list_runs(study: Study, seeds: int | None = None, device: str | None = None) -> list[Run]:
    """Return all runs of a study, each once; seeds vary slowest, so that early results cover the whole table."""
    found = {run.key: run for _, runs in study.runs(seeds, device) for run in runs}
    return sorted(found.values(), key=lambda run: run.seed)


def results_folder(experiment: Experiment, out: Path) -> Path:
    """Return where rows and page are: `<out>/<paper>/results` if `out` has a folder for the paper, else `out`.

    So `--out papers` finds and rewrites what is committed, and any other folder holds everything side by side.
    """
    folder = out / experiment.paper.folder
    return folder / "results" if folder.is_dir() else out


def run_experiment(
    experiment: Experiment,
    preset: Preset,
    out: Path,
    engine: Engine,
    *,
    seeds: int | None = None,
    device: str | None = None,
    retry: bool = False,
    listen: Listen = lambda event: None,
) -> ExperimentResult:
    """Run what is missing of an experiment and judge what is there; stopped at any moment, the same call goes on.

    Args:
        experiment: What to run.
        preset: "paper" or "cpu".
        out: Folder of the results, see `results_folder`; runs are kept in `out/runs`, which experiments share.
        engine: What trains the runs.
        seeds: Number of seeds, instead of the study's.
        device: Where to train, instead of the study's.
        retry: Also run again what failed before.
        listen: Called with every event.
    """
    study, store = study_with_data(experiment, preset), Store(out / "runs")
    summary = None
    if study.compute is not None:
        observations = study.compute(study.seeds if seeds is None else seeds)
    else:
        summary = run_sweep(store, list_runs(study, seeds, device), engine, retry=retry, listen=listen)
        observations = observe(study.runs(seeds, device), experiment.measures, store)
    return _judge_and_write(experiment, preset, study, out, observations, versions(), summary)


def judge_again(
    experiment: Experiment, preset: Preset, out: Path, *, seeds: int | None = None, device: str | None = None
) -> ExperimentResult:
    """Judge the observations that are in a folder by the rules and notes of now, and write rows and page anew.

    Args:
        experiment: What was run before.
        preset: "paper" or "cpu".
        out: Folder of the results, see `results_folder`; nothing is run.
        seeds: Number of seeds that it was run with, if not the study's.
        device: Where it was run, if not the study's.

    Raises:
        ReproduceError: There are none, or they come from runs that the study does not have.
    """
    study, name, folder = find_study(experiment, preset), f"{experiment.name}.{preset}", results_folder(experiment, out)
    observations = read_lines(folder / f"{name}.observations.jsonl")
    rows = read_lines(folder / f"{name}.jsonl")
    if not observations or not rows:
        raise ReproduceError(
            expected=f"rows and observations of {name} in {folder}",
            got="none",
            fix=f"run it first: rekindle reproduce {experiment.name} --preset {preset} --out {out}",
        )
    known = {run.key for run in list_runs(study, seeds, device)}
    foreign = [one for one in observations if "key" in one and one["key"] not in known]
    if foreign:
        raise ReproduceError(
            expected=f"observations of runs that {name} has",
            got=f"{len(foreign)} of {len(observations)} of others, such as {foreign[0]['key']} "
            f"({foreign[0]['condition']}, {foreign[0]['method']}): the settings were changed since",
            fix="run the experiment again, without --judge; or give the --seeds and --device that it was run with",
        )
    head = _head(experiment, preset)
    bare = [{key: value for key, value in one.items() if key not in head} for one in observations]
    return _judge_and_write(experiment, preset, study, out, bare, rows[0]["versions"], summary=None)


def _judge_and_write(
    experiment: Experiment,
    preset: Preset,
    study: Study,
    out: Path,
    observations: list[Row],
    made_with: Row,
    summary: Summary | None,
) -> ExperimentResult:
    """Judge, and write unless that would lose results; `made_with` are the versions that the runs were made with."""
    findings = judge(experiment, observations, study.is_as_published)
    text = page(experiment, preset, study, findings, observations)
    head = _head(experiment, preset)
    contents = {
        "jsonl": to_lines({**head, "versions": made_with, **_plain(row)} for row in findings),
        "observations.jsonl": to_lines({**head, **_plain(row)} for row in observations),
        "md": text,
    }
    folder = results_folder(experiment, out)
    folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{experiment.name}.{preset}.{ending}": content for ending, content in contents.items()}
    if summary is not None and not summary.is_whole:
        written = len(read_lines(folder / f"{experiment.name}.{preset}.observations.jsonl"))
        files = files if len(observations) >= max(1, written) else {}
    for path, content in files.items():
        _write_whole(path, content)
    return ExperimentResult(findings, observations, text, tuple(files), summary)


def _head(experiment: Experiment, preset: Preset) -> Row:
    """Return what every row begins with; the key is still "entry", as in all rows that were ever written."""
    return {"entry": experiment.name, "preset": preset}


def judge(experiment: Experiment, observations: Sequence[Row], comparable: bool = True) -> list[Row]:
    """Return the findings of all rules of an experiment.

    Numbers of a reduced study get no verdict; published ones of settings that it does not have are left out. Claims get
    none where a gate does not hold.
    """
    gates, found = (
        [finding for rule in rules for finding in rule.judge(observations, experiment.published)]
        for rules in (experiment.gates, experiment.rules)
    )
    if any(row["kind"] == "claim" and row["verdict"] != HOLDS for row in gates):
        found = [row if row["kind"] == "number" else row | {"verdict": GATED} for row in found]
    found = gates + found
    run = {(one["condition"], one["method"]) for one in observations}
    return found if comparable else [_reduced(row) for row in found if _is_run(row, run)]


def _is_run(row: Row, run: Collection[tuple[str, str]]) -> bool:
    return row["kind"] != "number" or (row["condition"], row["method"]) in run


def _reduced(row: Row) -> Row:
    return row | {"verdict": REDUCED} if row["kind"] == "number" and row["verdict"] != "" else row


def _plain(row: Row) -> Row:
    """Return a row without infinite numbers and NaN, which JSON does not have."""
    return {key: None if _is_odd(value) else value for key, value in row.items()}


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader, and a crash, finds the old one or all of the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
