"""What the code before the move has written is found, read and gone on with: runs, checkpoints, states of Keepers."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import torch
from commands import command, ended, program
from lookup import spec
from observe_keepers import LIVELY, note_kept, train
from observe_runs import execute, run_of, stop
from observe_sweeps import give_times, stored
from recording import Seen, untimed
from subjects import aged

import rekindle as rk

SPEC = """
protocol: warm_start:fraction=0.2,before=3,after=2
model: "mlp:hidden=16|16"
batch_size: 64
grid: {methods: [none, layerwise, "redo:period=3,threshold=0.3"]}
seeds: 2
"""
BEGUN = {"methods": "l2_init+redo:period=3,threshold=0.3", "seed": 4}
MODEL = "cnn_bn"


def observe(seen: Seen, room: Path, store: Path | None = None) -> None:
    """Work on a copy of a store, which is made first if there is none: of the code before, for both sides."""
    store = store or room / "made"
    if not store.exists():
        make(store)
    copy = room / "copy"
    shutil.copytree(store, copy)
    seen.attempt("sweep", lambda: _sweep(seen, copy))
    seen.attempt("begun", lambda: _run(seen, copy))
    for key in LIVELY:
        seen.attempt(f"keeper/{key}", lambda key=key: _keeper(seen, copy, key))


def make(store: Path) -> None:
    """Finish some runs, begin one, and save Keepers in the middle of their work."""
    store.mkdir(parents=True)
    (store / "spec.yaml").write_text(SPEC)
    ended(program("sweep", "spec.yaml", "--out", "runs", "--workers", "1", room=store))
    give_times(store / "runs")
    stop(run_of(**BEGUN), store / "begun", rows=2)
    member = rk.testing.ZOO[MODEL]
    for key in LIVELY:
        parts = _started(key, member)
        train(*parts, member, steps=5)
        torch.save([each.state_dict() for each in parts], store / f"{key}.pt")


def _sweep(seen: Seen, folder: Path) -> None:
    """All runs are finished; the same command trains nothing and writes nothing."""
    words = ("sweep", "spec.yaml", "--out", "runs", "--workers", "1")
    before = _files(folder / "runs")
    seen.note("sweep/dry", command(*words, "--dry-run", room=folder))
    seen.note("sweep/told", ended(program(*words, room=folder)))
    seen.note("sweep/untouched", _files(folder / "runs") == before)
    seen.note("sweep/rows", stored(folder / "runs"))
    seen.note("sweep/report", command("report", "runs", "-o", "page.html", "--markdown", "table.md", room=folder))
    seen.note("sweep/table", (folder / "table.md").read_text())


def _run(seen: Seen, folder: Path) -> None:
    """A run that was begun goes on from its checkpoint and tells of the rows that are missing only."""
    heard: list[Any] = []
    rows = execute(run_of(**BEGUN), folder / "begun", progress=heard.append)
    seen.note("begun/rows", untimed(rows))
    seen.note("begun/heard", len(heard))


def _keeper(seen: Seen, folder: Path, key: str) -> None:
    """A Keeper takes its saved state and goes on."""
    member = rk.testing.ZOO[MODEL]
    parts = _started(key, member)
    for each, state in zip(parts, torch.load(folder / f"{key}.pt", weights_only=True), strict=True):
        each.load_state_dict(state)
    seen.note(f"keeper/{key}/penalties", train(*parts, member, steps=3))
    note_kept(seen, f"keeper/{key}", *parts)


def _started(key: str, member: Any) -> tuple[Any, Any, Any]:
    model, optimizer = aged(member, steps=1)
    methods = spec(LIVELY[key][0], rk.method)
    return model, optimizer, rk.Keeper(model, optimizer, methods, example=member.example(), seed=1)


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "claim" not in path.name
    }
