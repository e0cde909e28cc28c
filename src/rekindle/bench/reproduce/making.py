"""Make an entry: run what is open through store and engine, read the rows, judge, write rows and a table."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.bench import work
from rekindle.bench.reproduce.entry import Entry, Preset, Row, Study
from rekindle.bench.reproduce.reading import observe
from rekindle.bench.reproduce.showing import page
from rekindle.bench.rows import read_lines, to_lines, write_whole
from rekindle.bench.spec import Run
from rekindle.bench.store import Store, versions
from rekindle.bench.work import Engine, Listen, Summary
from rekindle.core.errors import RekindleError
from rekindle.data.store import VARIABLE, cache

REDUCED = "not compared: reduced"


class ReproduceError(RekindleError):
    """An entry cannot be made."""


@dataclass(frozen=True)
class Made:
    """What came of an entry.

    Args:
        findings: Rows with verdicts.
        observations: One for each condition, method and seed.
        page: The Markdown page.
        files: What was written: nothing if runs are missing and the folder has more results, or these have none.
        summary: What came of the runs; None where nothing was trained.
    """

    findings: list[Row]
    observations: list[Row]
    page: str
    files: tuple[Path, ...]
    summary: Summary | None


def runnable(entry: Entry, preset: Preset) -> Study:
    """Return what to run.

    Raises:
        ReproduceError: The entry waits for something.
    """
    study = entry.study(preset)
    if study is None or entry.waits_for:
        raise ReproduceError(
            expected=f"an entry that can be run with preset {preset!r}",
            got=f"{entry.name}, which waits for: {entry.waits_for or 'such a preset'}",
            fix="see `rekindle reproduce --list` for those that can",
        )
    return study


def study_of(entry: Entry, preset: Preset) -> Study:
    """Return what to run, after checking that it can be and that its data are there.

    Raises:
        ReproduceError: The entry waits for something, or data are missing.
    """
    study = runnable(entry, preset)
    missing = [name for name in study.data() if not (cache() / name / "train.npz").is_file()]
    if missing:
        raise ReproduceError(
            expected=f"the data sets {', '.join(missing)} in {cache()}",
            got="no such files",
            fix=f"set {VARIABLE} to a folder that has {missing[0]}/train.npz and {missing[0]}/test.npz, or fetch with "
            f"`python -c \"import rekindle as rk; rk.data.download('{missing[0]}')\"` "
            "(needs network and pip install 'rekindle[hub]')",
        )
    return study


def runs_of(study: Study, seeds: int | None = None, device: str | None = None) -> list[Run]:
    """Return all runs of a study, each once; seeds vary slowest, so that early results cover the whole table."""
    found = {run.key: run for _, runs in study.runs(seeds, device) for run in runs}
    return sorted(found.values(), key=lambda run: run.seed)


def make(
    entry: Entry,
    preset: Preset,
    out: Path,
    engine: Engine,
    *,
    seeds: int | None = None,
    device: str | None = None,
    retry: bool = False,
    listen: Listen = lambda event: None,
) -> Made:
    """Run what is open of an entry and judge what is there; stopped at any moment, the same call goes on.

    Args:
        entry: What to make.
        preset: "paper" or "cpu".
        out: Folder of rows and page; runs are kept in `out/runs`, which entries share.
        engine: Who runs.
        seeds: Number of seeds, instead of the study's.
        device: Where to train, instead of the study's.
        retry: Also run again what failed before.
        listen: Called with every event.
    """
    study, store = study_of(entry, preset), Store(out / "runs")
    summary = None
    if study.compute is not None:
        observations = study.compute(study.seeds if seeds is None else seeds)
    else:
        runs = runs_of(study, seeds, device)
        summary = work.run_sweep(store, runs, engine, function=work.EXECUTE, retry=retry, listen=listen)
        observations = observe(study.runs(seeds, device), entry.measures, store)
    return _conclude(entry, preset, study, out, observations, versions(), summary)


def judge_again(
    entry: Entry, preset: Preset, out: Path, *, seeds: int | None = None, device: str | None = None
) -> Made:
    """Judge the observations that are in a folder by the rules and notes of now, and write rows and page anew.

    Args:
        entry: What was made before.
        preset: "paper" or "cpu".
        out: Folder with its rows and observations; nothing is run.
        seeds: Number of seeds that it was made with, if not the study's.
        device: Where it was made, if not the study's.

    Raises:
        ReproduceError: There are none, or they come from runs that the study does not have.
    """
    study, name = runnable(entry, preset), f"{entry.name}.{preset}"
    observations = read_lines(out / f"{name}.observations.jsonl")
    before = read_lines(out / f"{name}.jsonl")
    if not observations or not before:
        raise ReproduceError(
            expected=f"rows and observations of {name} in {out}",
            got="none",
            fix=f"make them first: rekindle reproduce {entry.name} --preset {preset} --out {out}",
        )
    known = {run.key for _, runs in study.runs(seeds, device) for run in runs}
    strange = [one for one in observations if "key" in one and one["key"] not in known]
    if strange:
        raise ReproduceError(
            expected=f"observations of runs that {name} has",
            got=f"{len(strange)} of {len(observations)} of others, such as {strange[0]['key']} "
            f"({strange[0]['condition']}, {strange[0]['method']}): the settings were changed since",
            fix="run the entry again, without --judge; or give the --seeds and --device that it was made with",
        )
    seen = [{key: value for key, value in one.items() if key not in _head(entry, preset)} for one in observations]
    return _conclude(entry, preset, study, out, seen, before[0]["versions"], summary=None)


def _conclude(
    entry: Entry,
    preset: Preset,
    study: Study,
    out: Path,
    observations: list[Row],
    made_by: Row,
    summary: Summary | None,
) -> Made:
    """Judge, and write unless that would lose results; `made_by` are the versions of the observations."""
    findings = judge(entry, observations, study.is_as_published)
    text = page(entry, preset, study, findings, observations)
    head = _head(entry, preset)
    contents = {
        "jsonl": to_lines({**head, "versions": made_by, **_plain(row)} for row in findings),
        "observations.jsonl": to_lines({**head, **_plain(row)} for row in observations),
        "md": text,
    }
    out.mkdir(parents=True, exist_ok=True)
    files = {out / f"{entry.name}.{preset}.{ending}": content for ending, content in contents.items()}
    if summary is not None and not summary.is_whole:
        written = len(read_lines(out / f"{entry.name}.{preset}.observations.jsonl"))
        files = files if len(observations) >= max(1, written) else {}
    for path, content in files.items():
        write_whole(path, content)
    return Made(findings, observations, text, tuple(files), summary)


def _head(entry: Entry, preset: Preset) -> Row:
    return {"entry": entry.name, "preset": preset}


def judge(entry: Entry, observations: Sequence[Row], comparable: bool = True) -> list[Row]:
    """Return the findings of all rules of an entry.

    Numbers of a reduced study get no verdict; published ones of settings that it does not have are left out.
    """
    found = [finding for rule in entry.rules for finding in rule.judge(observations, entry.published)]
    run = {(one["condition"], one["method"]) for one in observations}
    return found if comparable else [_reduced(row) for row in found if _is_run(row, run)]


def _is_run(row: Row, run: Collection[tuple[str, str]]) -> bool:
    return row["kind"] != "number" or (row["condition"], row["method"]) in run


def _reduced(row: Row) -> Row:
    return row | {"verdict": REDUCED} if row["kind"] == "number" and row["verdict"] != "" else row


def _plain(row: Row) -> Row:
    """JSON knows no infinite numbers and no NaN."""
    return {key: None if _is_odd(value) else value for key, value in row.items()}


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
