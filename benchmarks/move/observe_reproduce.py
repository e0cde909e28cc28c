"""The papers' tables: every entry with the keys of its runs, presets, and the verdicts on committed observations."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from commands import command
from lookup import find
from recording import Seen, untimed

import rekindle as rk


def observe(seen: Seen, room: Path) -> None:
    """Observe all of it; nothing is trained."""
    entries = find("rekindle.bench.reproduce.catalogue:ENTRIES")
    for name, entry in entries.items():
        for part in ("name", "where", "claim", "published", "measures", "waits_for"):  # papers and rules were reworded
            seen.note(f"entry/{name}/{part}", getattr(entry, part))
        for preset in ("paper", "cpu"):
            seen.note(f"runs/{name}/{preset}", _keys(entry.study(preset)))
    _presets(seen)
    _judged(seen, room)


def _keys(study: Any) -> list[str]:
    """Return every run of a study: condition, method and key."""
    if study is None:
        return []
    return [f"{cell.condition}: {cell.method}: {run.key}" for cell, runs in study.runs(2) for run in runs]


def _presets(seen: Seen) -> None:
    seen.note("presets/runs", find("rekindle.bench.presets:RUNS"))
    seen.note("presets/best", find("rekindle.bench.presets:BEST"))
    for name in find("rekindle.bench.presets:BEST"):
        sweep = find("rekindle.bench.sweep:parse_sweep")(f"preset: {name}")
        seen.note(f"presets/{name}", {run.key: run.to_dict() for run in sweep.expand()})


def _judged(seen: Seen, room: Path) -> None:
    """Judge the committed observations anew."""
    root = Path(rk.__file__).parents[2]
    folders = [folder for folder in root.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    committed = sorted(file for folder in folders for file in folder.rglob("*.cpu.observations.jsonl"))
    assert committed, f"no committed observations below {root}"
    for path in committed:
        shutil.copy(path, room)
        shutil.copy(path.with_name(path.name.replace(".observations", "")), room)
    for name in sorted(path.name.split(".")[0] for path in committed):
        seen.note(f"judged/{name}", command("reproduce", name, "--judge", "--out", ".", room=room).partition("\n")[0])
        rows = find("rekindle.bench.rows:read_lines")(room / f"{name}.cpu.jsonl")
        seen.note(f"judged/{name}/rows", untimed(rows))
